"""The commands that run models: a thin layer over :mod:`loadmaster.runtime`, added to :mod:`loadmaster.cli`."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["register"]

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]

zoo_commands = typer.Typer(
    help="List the models of the zoo, or write one that runs.",
    rich_markup_mode=None,
    invoke_without_command=True,
)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.add_typer(zoo_commands, name="zoo")


# -- the zoo -------------------------------------------------------------------------------------------------


@zoo_commands.callback()
def zoo(context: typer.Context, as_json: Json = False) -> None:
    """List the models of the zoo, or write one that runs ('zoo export')."""
    if context.invoked_subcommand is not None:
        return
    from loadmaster.report._documents import to_json
    from loadmaster.report._runtime import zoo_documents, zoo_table
    from loadmaster.report._tables import show

    documents = zoo_documents()
    if as_json:
        typer.echo(to_json(documents))
    else:
        show(zoo_table(documents))


@zoo_commands.command()
def export(
    name: Annotated[str, typer.Argument(metavar="NAME", help="e.g. resnet-50 or bert-base?seq=64")],
    path: Annotated[
        str, typer.Argument(metavar="FILE", help="The IR to write: model.xml (weights: model.bin).")
    ],
    seed: Annotated[int, typer.Option(help="Of the random weights.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Write a model of the zoo as an OpenVINO IR that runs, with random weights."""
    from loadmaster.graph import load_openvino
    from loadmaster.report._documents import to_json
    from loadmaster.zoo._export import export_model

    export_model(name, path, seed=seed)
    layers, ops = load_openvino(path, counting="layers").graph, load_openvino(path).graph
    document = {
        "model": name,
        "file": path,
        "layers": layers.n,
        "layer_edges": len(layers.arcs[0]),
        "ops": ops.n,
        "edges": len(ops.arcs[0]),
        "hash": ops.digest,
    }
    if as_json:
        typer.echo(to_json(document))
    else:
        typer.echo(
            f"{path}: {layers.n} IR layers and {document['layer_edges']} edges; "
            f"{ops.n} ops and {document['edges']} edges that execute"
        )
