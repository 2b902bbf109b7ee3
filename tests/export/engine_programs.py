"""What a test runs in a process of its own, where the engines are: ``python engine_programs.py NAME [FILE]``.

``LOADMASTER_ENGINES`` names a site-packages folder with torchtitan and DeepSpeed, which is looked at last.
"""

import importlib
import json
import os
import sys
from pathlib import Path

if folder := os.environ.get("LOADMASTER_ENGINES"):
    sys.path.append(folder)

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 8)

    def forward(self, x):
        return x + self.fc2(torch.relu(self.fc1(x)))


class Model(nn.Module):
    """As torchtitan's models: a forward that works with what is left of the model."""

    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Linear(4, 8)
        self.layers = nn.ModuleDict({str(i): Block() for i in range(4)})
        self.norm = nn.LayerNorm(8)
        self.lm_head = nn.Linear(8, 2)

    def forward(self, x):
        x = self.tok_embeddings(x) if self.tok_embeddings is not None else x
        for layer in self.layers.values():
            x = layer(x)
        x = self.norm(x) if self.norm is not None else x
        return self.lm_head(x) if self.lm_head is not None else x


def model():
    torch.manual_seed(0)
    return Model()


def torchtitan(path):
    """Split as the exported file says, run the parts one after another, and print what each holds."""
    pipelines = importlib.import_module("torchtitan.distributed.pipeline_parallel")
    settings = importlib.import_module("torchtitan.config").ParallelismConfig
    given = settings(**json.loads(Path(path).read_text())).module_fqns_per_model_part
    whole = model()
    value = expected = torch.randn(3, 4)
    held = []
    for names in given:
        part = pipelines._split_module(whole, names)
        held.append(sorted({name.rpartition(".")[0] for name, _ in part.named_parameters()}))
        value = part(value)
    print(json.dumps({"held": held, "equal": torch.equal(value, whole(expected))}))


def titans_rule(_):
    """The parts that torchtitan itself would make, for several sizes."""
    rule = importlib.import_module(
        "torchtitan.distributed.pipeline_parallel"
    )._generate_llm_fqn_per_model_part
    found = {}
    for stages, layers, first, last in (
        (2, 4, 1, 1),
        (3, 12, 1, 1),
        (4, 6, 1, 1),
        (2, 9, 2, 1),
        (4, 32, 1, 3),
    ):
        found[f"{stages},{layers},{first},{last}"] = rule(stages, layers, first, last)
    print(json.dumps(found))


def deepspeed(path):
    """One of two ranks: build the stage, run it on what the one before sends, and say what it holds."""
    import torch.distributed as dist

    os.environ["DS_ACCELERATOR"] = "cpu"
    speed = importlib.import_module("deepspeed")
    # It would compile a faster all-reduce in shared memory, which needs ninja and a minute.
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    speed.init_distributed("gloo")
    given = json.loads(Path(path).read_text())

    class Placed(importlib.import_module("deepspeed.pipe").PipelineModule):
        def _partition_layers(self, method="uniform"):
            self.parts = given["parts"]
            self._set_bounds(start=self.parts[self.stage_id], stop=self.parts[self.stage_id + 1])

    whole = model()
    layers = [whole.get_submodule(name) for name in given["layers"]]
    stage = Placed(layers=layers, num_stages=given["num_stages"])
    x = torch.randn(3, 4)
    rank = dist.get_rank()
    value = x if rank == 0 else torch.empty(3, 8)
    if rank:
        dist.recv(value, rank - 1)
    value = stage(value)
    if rank == 0:
        dist.send(value, 1)
    held = [given["layers"][i] for i in range(stage._local_start, stage._local_stop)]
    equal = rank == 0 or torch.equal(value, whole(x))
    Path(f"{path}.{rank}").write_text(json.dumps({"held": held, "equal": equal}))
    dist.barrier()


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else None)
