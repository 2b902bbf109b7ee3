"""One rank of ``test_ranks.py``: splits compared with the unsplit model, a trained checkpoint, refusals."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "graph" / "torch"))

import torch
import torch.distributed as dist
from small_modules import skip_case, tied_case

from benchmarks.torch_equality import random_split, swapped
from loadmaster.errors import InputError
from loadmaster.graph.torch import capture
from loadmaster.runtime.torch import Pipeline, compare, cut_stages, example_batch, perturbed, run_unsplit

MICROBATCHES = 2


def splits() -> list[dict[str, Any]]:
    rows = []
    for case, dropout, training in (
        (tied_case, 0.0, True),
        (tied_case, 0.2, True),
        (skip_case, 0.0, True),
        (skip_case, 0.0, False),
        (tied_case, 0.0, False),
        (skip_case, 0.0, True),
        (tied_case, 0.2, True),
    ):
        model, example, loss, target = case(dropout)
        captured = capture(model, example, training=training)
        batch = example_batch(captured.example, MICROBATCHES, target if training else None)
        used = loss if training else None
        reference = run_unsplit(captured, batch, MICROBATCHES, model=model, loss=used)
        number = len(rows)
        rng = random.Random(number)
        stages = 4 if number == 6 else 2
        cut = cut_stages(captured, random_split(captured, stages, ("op", "layer")[number % 2], rng), stages)
        ranks = [1, 0] if number == 5 else None  # the first stage need not be on the first rank
        kind = "interleaved" if stages == 4 else ("1f1b", "gpipe")[number // 2 % 2]
        pipe = Pipeline(captured, cut, microbatches=MICROBATCHES, schedule=kind, loss=used, ranks=ranks)
        row = compare(pipe, batch, reference).document()
        with perturbed(pipe):
            row["changed weight"] = compare(pipe, batch, reference).worst
        row["swapped microbatches"] = compare(pipe, swapped(batch, MICROBATCHES), reference).worst
        row["reference"] = reference.eager
        row["again"] = compare(pipe, batch, reference).equal
        assert row["again"], "a comparison leaves everything as it was"
        rows.append(row)
    return rows


def freed(pipe: Pipeline, model: Any) -> bool:
    """Whether a weight of the other rank is gone once the model is, and the pipeline still runs."""
    import gc
    import weakref

    mine = dict(pipe.named_parameters())
    other = next(
        weakref.ref(p)
        for name, p in model.named_parameters()
        if name not in mine and name.startswith("blocks")
    )
    names = set(pipe.state_dict())
    pipe.release()
    for part in model.modules():
        part._parameters.clear()
    gc.collect()
    batch = example_batch(pipe.capture.example, MICROBATCHES, pipe.capture.example.kwargs["ids"])
    pipe.step(*batch.args, target=batch.target, **batch.kwargs)
    return other() is None and set(pipe.state_dict()) == names


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    answer: dict[str, Any] = {"splits": splits()}
    model, example, loss, target = tied_case()
    captured = capture(model, example, training=True)
    cut = cut_stages(captured, [int(layer not in ("embed", "blocks.0")) for layer in captured.layers], 2)
    assert any(
        len({cut.stage_of[v] for v in p.readers}) == 2 for p in captured.parameters if len(p.names) > 1
    )
    pipe = Pipeline(captured, cut, microbatches=MICROBATCHES, loss=loss)
    batch = example_batch(captured.example, MICROBATCHES, target)
    optimizer = torch.optim.SGD(pipe.parameters(), 0.5)
    for _ in range(3):
        optimizer.zero_grad()
        pipe.step(*batch.args, target=batch.target, **batch.kwargs)
        optimizer.step()
    state = pipe.state_dict()
    torch.save(state, folder / f"rank{rank}.pt")
    tables: list[Any] = [None, None]
    dist.all_gather_object(tables, state["embed.weight"].detach())
    answer["tied apart"] = float((tables[0] - tables[1]).abs().max())
    kept = {name: tensor.clone() for name, tensor in state.items()}
    with torch.no_grad():
        for parameter in pipe.parameters():
            parameter.zero_()
    pipe.load_state_dict(kept)
    answer["loaded back"] = all(torch.equal(pipe.state_dict()[name], tensor) for name, tensor in kept.items())
    if pipe.is_first:
        try:
            pipe._inputs((), {"ids": torch.zeros(3, 5, dtype=torch.int64), "scale": torch.zeros(4)})
        except InputError as error:
            answer["wrong shape"] = str(error)
    three = cut_stages(captured, random_split(captured, 3, "layer", random.Random(0)), 3)
    try:
        Pipeline(captured, three, microbatches=3, loss=loss)
    except InputError as error:
        answer["too few ranks"] = str(error)
    try:
        Pipeline(captured, cut, microbatches=1, loss=loss)
    except InputError as error:
        answer["few microbatches"] = str(error)
    answer["freed"] = freed(pipe, model)
    if rank == 0:
        (folder / "answer.json").write_text(json.dumps(answer))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
