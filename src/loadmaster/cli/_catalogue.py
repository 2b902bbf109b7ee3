"""Commands that list what there is: ``methods``, ``clusters``, ``zoo``."""

from __future__ import annotations

from typing import Annotated

import typer

from loadmaster.cli._options import Json
from loadmaster.cli._output import print_result, say
from loadmaster.cli._startup import start_numba

__all__ = ["clusters", "methods", "warm", "zoo_commands"]

zoo_commands = typer.Typer(
    help="List the models in the zoo, or export one.",
    rich_markup_mode=None,
    invoke_without_command=True,
)


def methods(as_json: Json = False) -> None:
    """List the methods and the execution models they support."""
    from loadmaster import api, report

    documents = api.methods()
    for sentence in api.broken_methods():
        say(sentence)
    print_result(documents, as_json, lambda: report.methods_table(documents))


def warm(
    method: Annotated[
        str, typer.Option(metavar="NAME", help="The method to make ready; see 'loadmaster methods'.")
    ] = "auto",
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", metavar="NAME", help="An execution model, e.g. pipeline:chain; by default all."
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="C", help="Whose number of devices to compile for; default 2acc+1cpu."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compile ahead of time what a method needs, so that the first 'place' does not have to wait for it."""
    start_numba()
    from loadmaster import api, report

    def started(name: str) -> None:
        say(f"compiling what {method} needs under {name} …")

    chosen = {"models": model} if model else {}
    documents = [found._asdict() for found in api.warm(method, cluster=cluster, on_start=started, **chosen)]
    print_result(documents, as_json, lambda: report.warm_table(documents))


def clusters(
    cluster: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Preset or TOML file.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """List the preset clusters, or show one in detail."""
    from loadmaster import api, report

    if cluster is not None:
        document = report.cluster_document(api.cluster(cluster))
        print_result(document, as_json, lambda: report.cluster_tables(document))
        return
    documents = [report.cluster_document(found) for found in api.clusters()]
    print_result(documents, as_json, lambda: report.clusters_table(documents))


@zoo_commands.callback()
def zoo(context: typer.Context, as_json: Json = False) -> None:
    """List the models in the zoo, or export one ('zoo export')."""
    if context.invoked_subcommand is not None:
        return
    from loadmaster import api, report

    documents = api.zoo_models()
    print_result(documents, as_json, lambda: report.zoo_table(documents))


@zoo_commands.command()
def export(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Model, e.g. resnet-50 or bert-base?seq=64.")],
    path: Annotated[
        str, typer.Argument(metavar="FILE", help="IR file to write: model.xml (weights go to model.bin).")
    ],
    seed: Annotated[int, typer.Option(help="Random seed for the weights.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Export a zoo model as a runnable OpenVINO IR with random weights."""
    from loadmaster import api, report

    document = api.write_zoo_model(name, path, seed=seed)
    if as_json:
        typer.echo(report.to_json(document))
    else:
        typer.echo(
            f"{path}: {document['layers']} IR layers and {document['layer_edges']} edges; "
            f"{document['ops']} ops and {document['edges']} edges to place"
        )
