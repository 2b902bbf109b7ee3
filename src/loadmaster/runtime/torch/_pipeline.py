"""This rank's stage and schedule, for a training loop of the user's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import pipelining
from torch.utils import _pytree as pytree

from loadmaster.errors import InputError
from loadmaster.files import shown
from loadmaster.graph.torch import Capture, Parameter
from loadmaster.plan import Plan
from loadmaster.runtime.torch._allocation import keep_freed_memory
from loadmaster.runtime.torch._cut import Cut, Stages, cut_stages, stages_of_plan
from loadmaster.runtime.torch._drawing import Clock
from loadmaster.runtime.torch._modules import stage_module

__all__ = ["SCHEDULES", "Pipeline", "open_pipeline"]

SCHEDULES = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved": "ScheduleInterleaved1F1B",
}
"""Names of ours -> classes of ``torch.distributed.pipelining``."""


class _Sends(list[Any]):
    """What is to be sent. Where the engine adds what is to be received at the same time, that goes first.

    Gloo tells the other rank that it may send in the same stream as the data itself: behind a message that is on its
    way this waits until the message has arrived, and the two directions of a link work one after the other.
    """

    def __add__(self, received: Any) -> Any:
        return [*received, *self]


class _Stage(pipelining.PipelineStage):  # type: ignore[misc]
    """The engine's stage, which asks for messages before it sends its own."""

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> Any:
        return _Sends(super().get_fwd_send_ops(fwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> Any:
        return _Sends(super().get_bwd_send_ops(bwd_chunk_id))


class Pipeline:
    """One rank's part of a model that is split over ranks.

    Attributes
    ----------
    stages : this rank's ``PipelineStage``\\ s; one, but for interleaved schedules.
    schedule : the engine's schedule, over those stages.
    modules : this rank's stages as modules; their parameters are those of the model.
    """

    def __init__(
        self,
        capture: Capture,
        cut: Cut,
        *,
        microbatches: int,
        schedule: str = "1f1b",
        loss: Callable[..., Any] | None = None,
        scale_gradients: bool = True,
        seed: int = 0,
        device: Any = None,
        ranks: Sequence[int] | None = None,
    ) -> None:
        if schedule not in SCHEDULES:
            raise InputError(f"the schedule {schedule!r} is unknown: choose one of {', '.join(SCHEDULES)}")
        if microbatches < 1:
            raise InputError(f"there must be at least one microbatch, not {microbatches}")
        if loss is not None and not capture.training:
            raise InputError(
                "a loss is given for a model that was captured for inference: capture it with training=True"
            )
        start_processes()
        self.capture, self.cut, self.microbatches, self._loss = capture, cut, microbatches, loss
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        _check_ranks(cut.count, self.world, schedule)
        _check_microbatches(microbatches, cut.count, self.world, schedule)
        self.device = torch.device(device) if device is not None else default_device()
        if self.device.type == "cpu":
            keep_freed_memory()
        self.clock = [Clock(seed, microbatches) for _ in range(cut.count)]
        self.rank_of = (
            list(ranks) if ranks is not None else [stage % self.world for stage in range(cut.count)]
        )
        self.mine = [stage for stage in range(cut.count) if self.rank_of[stage] == self.rank]
        self.modules = [
            stage_module(capture, cut, stage, self.clock[stage]).to(self.device) for stage in self.mine
        ]
        self.stages = [
            _Stage(
                module,
                stage,
                cut.count,
                self.device,
                input_args=tuple(value.empty(self.device) for value in cut.boundaries[stage]),
                output_args=tuple(value.empty(self.device) for value in cut.boundaries[stage + 1]),
            )
            for stage, module in zip(self.mine, self.modules, strict=True)
        ]
        for stage in self.stages:
            stage.stage_index_to_group_rank = dict(enumerate(self.rank_of))
        kind = getattr(pipelining, SCHEDULES[schedule])
        self.schedule = kind(
            self.stages if schedule == "interleaved" else self.stages[0],
            microbatches,
            loss_fn=None if loss is None else self._loss_of,
            scale_grads=scale_gradients and schedule != "interleaved",
        )
        # Two stages of one rank may share a parameter, whose gradient the engine would divide twice.
        self._scale = microbatches if scale_gradients and schedule == "interleaved" else 1
        self._targeted = False
        self.tied = _tied_groups(capture, cut, self.rank_of)
        self._agree_on_tied()

    def __repr__(self) -> str:
        return (
            f"Pipeline({self.capture.name!r}, rank {self.rank} of {self.world}, stage "
            f"{' and '.join(map(str, self.mine))} of {self.cut.count}, {type(self.schedule).__name__})"
        )

    @property
    def trains(self) -> bool:
        """Whether there is a loss, and so a backward pass."""
        return self._loss is not None

    @property
    def is_first(self) -> bool:
        """Whether this rank is given the inputs."""
        return 0 in self.mine

    @property
    def is_last(self) -> bool:
        """Whether this rank has the results and the loss."""
        return self.cut.count - 1 in self.mine

    # -- running ---------------------------------------------------------------------------------------------

    def step(self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any) -> Any:
        """One step over a whole batch: forward, and with a loss backward; gradients of tied weights are added up.

        All ranks are given the same batch and target, or only those that need them: the first one the inputs, the last
        one the target. The results of all microbatches are returned on the last rank, joined along the first axis (a
        number per microbatch becomes a vector), and None elsewhere. ``losses`` is filled on the last rank.

        Raises
        ------
        InputError : a tensor does not have the shape of the example, times the number of microbatches.
        """
        found = self.schedule.step(*self._inputs(args, kwargs), target=self._target(target), losses=losses)
        if self._loss is not None:
            if self._scale != 1:
                for parameter in self.parameters():
                    if parameter.grad is not None:
                        parameter.grad.div_(self._scale)
            self.reduce_tied()
        return self._results(found)

    def evaluate(self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any) -> Any:
        """Forward alone, without gradients; otherwise as :meth:`step`. Ops run as they were captured: a model captured
        for training keeps its dropout."""
        with torch.no_grad():
            found = self.schedule.eval(
                *self._inputs(args, kwargs), target=self._target(target), losses=losses
            )
        return self._results(found)

    def release(self) -> None:
        """Let go of the weights of other ranks, which the capture still holds.

        They are free once nobody else has them: the model that was captured, for one.
        """
        mine = {id(tensor) for module in self.modules for tensor in (*module.parameters(), *module.buffers())}
        if self.is_first:
            mine |= {id(tensor) for tensor in self.capture.unread.values()}
        self.capture.forget(mine)

    def rewind(self) -> None:
        """Draw random numbers as in the first step again."""
        for clock in self.clock:
            clock.calls = 0

    def reduce_tied(self) -> None:
        """Add up the gradients of parameters that several stages hold; :meth:`step` does it."""
        for parameter, _, group in self.tied:
            held = self._held(parameter)
            if not held:
                continue
            for other in held[1:]:
                _add_gradient(held[0], other.grad)
            if group is not None:
                if held[0].grad is None:
                    held[0].grad = torch.zeros_like(held[0])
                held[0].grad = held[0].grad.contiguous()
                dist.all_reduce(held[0].grad, group=group)
            for other in held[1:]:
                other.grad = held[0].grad.clone()

    def _inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        if not self.is_first:
            return []
        capture = self.capture
        order = capture.example.kwargs if capture.example is not None else kwargs
        unknown = [name for name in kwargs if name not in order]
        if unknown:
            raise InputError(
                f"the keyword {unknown[0]!r} is not in the example that {capture.name} was captured with"
            )
        ordered = {name: kwargs[name] for name in order if name in kwargs}
        given = [leaf for leaf in pytree.tree_leaves((args, ordered)) if isinstance(leaf, torch.Tensor)]
        expected = self.cut.boundaries[0]
        if len(given) != len(expected):
            raise InputError(
                f"{capture.name} takes {len(expected)} tensors ({', '.join(value.node.name for value in expected)}), "
                f"not {len(given)}"
            )
        for tensor, value in zip(given, expected, strict=True):
            wanted = (value.shape[0] * self.microbatches, *value.shape[1:]) if value.shape else ()
            if tuple(tensor.shape) != wanted or tensor.dtype != value.dtype:
                raise InputError(
                    f"the input {value.node.name!r} is {_kind(tensor.shape, tensor.dtype)}, but {self.microbatches} "
                    f"microbatches like the example are {_kind(wanted, value.dtype)}"
                )
        return [tensor.to(self.device) for tensor in given]

    def _target(self, target: Any) -> Any:
        if not self.is_last or self._loss is None:
            return None
        self._targeted = target is not None
        # The engine wants something to cut into microbatches, also where the loss needs no target.
        return torch.zeros(self.microbatches) if target is None else target.to(self.device)

    def _loss_of(self, output: Any, target: Any) -> Any:
        assert self._loss is not None
        results = unflattened(self.capture, output, joined=False)
        return self._loss(results, target) if self._targeted else self._loss(results)

    def _results(self, found: Any) -> Any:
        if found is None:
            return None
        return unflattened(self.capture, found, joined=True)

    # -- weights -----------------------------------------------------------------------------------------------

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """This rank's parameters, under the names of the whole model."""
        seen: set[int] = set()
        for module in self.modules:
            for name, parameter in module.named_parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield name, parameter

    def parameters(self) -> Iterator[Any]:
        """This rank's parameters, for an optimizer."""
        return (parameter for _, parameter in self.named_parameters())

    def zero_grad(self) -> None:
        """Forget the gradients of this rank."""
        for parameter in self.parameters():
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """This rank's parameters and buffers under every name that the whole model has for them.

        The union over all ranks loads into the unsplit model; parameters that no op reads are on the first rank.
        """
        found: dict[str, Any] = {}
        for module in self.modules:
            for name, tensor in module.state_dict().items():
                for alias in self.capture.aliases.get(name, (name,)):
                    if alias in self.capture.persistent:
                        found[alias] = tensor
        if self.is_first:
            found |= self.capture.unread
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take this rank's parameters and buffers from a checkpoint of the whole model, or of this rank.

        Raises
        ------
        InputError : one is missing, or has another shape.
        """
        for name, tensor in self.state_dict().items():
            if name not in state:
                raise InputError(f"the checkpoint has no {name!r}, which rank {self.rank} needs")
            if tuple(state[name].shape) != tuple(tensor.shape):
                raise InputError(
                    f"{name!r} is {tuple(state[name].shape)} in the checkpoint and {tuple(tensor.shape)} in the model"
                )
            with torch.no_grad():
                tensor.copy_(state[name])

    def _held(self, parameter: Parameter) -> list[Any]:
        """This rank's tensors of a tied parameter: one, unless moving to a device has made copies."""
        found = []
        for module in self.modules:
            named = dict(module.named_parameters(remove_duplicate=False))
            found += [named[name] for name in parameter.names if name in named]
        return list({id(tensor): tensor for tensor in found}.values())

    def _agree_on_tied(self) -> None:
        """Replicas begin with the same values: those of the first rank that has one."""
        for parameter, ranks, group in self.tied:
            held = self._held(parameter)
            if group is not None and held:
                with torch.no_grad():
                    dist.broadcast(held[0].data, src=ranks[0], group=group)


def open_pipeline(
    capture: Capture,
    plan: Plan,
    *,
    microbatches: int | None = None,
    schedule: str | None = None,
    loss: Callable[..., Any] | None = None,
    scale_gradients: bool = True,
    seed: int = 0,
    device: Any = None,
    release: bool = False,
) -> Pipeline:
    """The pipeline of a plan, on this rank; ``release``: let go of the weights of others (:meth:`Pipeline.release`).

    Raises
    ------
    InputError : the plan is for another model or another version of PyTorch, or there are too few ranks.
    """
    check_plan(capture, plan)
    stages = stages_of_plan(capture, plan)
    noted = {**_as_planned(plan, stages), **(plan.document.get("torch") or {})}
    found = Pipeline(
        capture,
        cut_stages(capture, stages.of, len(stages.devices)),
        microbatches=microbatches or int(noted.get("microbatches", 0)) or 2 * len(stages.devices),
        schedule=schedule or str(noted.get("schedule", "1f1b")),
        loss=loss,
        scale_gradients=scale_gradients,
        seed=seed,
        device=device,
        ranks=stages.ranks,
    )
    if release:
        found.release()
    return found


def _as_planned(plan: Plan, stages: Stages) -> dict[str, Any]:
    """Schedule and microbatches of the execution model that the plan was made for."""
    settings = plan.document["settings"]
    found = {key: settings[key] for key in ("microbatches", "schedule") if settings.get(key)}
    if len(set(stages.ranks)) < len(stages.ranks):
        found["schedule"] = "interleaved"
    return found


def check_plan(capture: Capture, plan: Plan) -> None:
    """Refuse a plan for another version of PyTorch, whose exported ops may be others, or for another model."""
    noted = plan.document.get("torch")
    if isinstance(noted, Mapping) and noted.get("version") not in (None, torch.__version__):
        raise InputError(
            f"{plan.source}: was made with torch {shown(noted['version'])}, but this is {torch.__version__}: make the "
            "plan again"
        )
    graph = capture.network().graph
    if plan.graph_hash != graph.digest:
        raise InputError(
            f"{plan.source}: is a plan for a different model ({plan.graph_name}, {plan.graph_hash[:12]}) than "
            f"{capture.name} ({graph.digest[:12]}): another size, another example, or training instead of inference"
        )


def unflattened(capture: Capture, output: Any, *, joined: bool) -> Any:
    """Results in the structure that the model returns them in; ``joined``: of several microbatches."""
    tensors = iter(output if isinstance(output, list | tuple) else (output,))
    leaves = []
    for leaf in capture.output.args[0]:
        if not isinstance(leaf, torch.fx.Node):
            leaves.append(leaf)
            continue
        value = leaf.meta.get("val")
        tensor = next(tensors)
        single = isinstance(value, torch.Tensor) and value.shape == () and not joined
        leaves.append(tensor.reshape(()) if single else tensor)
    return pytree.tree_unflatten(leaves, capture.out_spec)


def start_processes() -> None:
    """Join the other ranks, as torchrun's environment says, unless that was done: nccl on GPUs, gloo on CPUs."""
    if dist.is_initialized():
        return
    if "RANK" not in os.environ:
        raise InputError("this is not one of several ranks: start the program with torchrun")
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")


def default_device() -> Any:
    """This rank's own device."""
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu")


def _check_ranks(stages: int, world: int, schedule: str) -> None:
    if schedule == "interleaved":
        if stages % world:
            raise InputError(f"{stages} interleaved stages cannot be shared evenly by {world} ranks")
        return
    if world != stages:
        few = "too few" if world < stages else "too many"
        raise InputError(
            f"the plan has {stages} stages and there are {world} ranks, which is {few}: start torchrun with "
            f"--nproc-per-node {stages}"
        )


def _check_microbatches(microbatches: int, stages: int, world: int, schedule: str) -> None:
    """What the engine asks of the number of microbatches."""
    if schedule == "1f1b" and microbatches < stages:
        raise InputError(
            f"1f1b needs as many microbatches as stages, which are {stages}, not {microbatches}: give more, or take "
            "gpipe"
        )
    rounds = max(1, microbatches // world)
    if schedule == "interleaved" and microbatches % rounds:
        raise InputError(
            f"interleaved stages on {world} ranks need a multiple of {rounds} microbatches, not {microbatches}"
        )


def _tied_groups(
    capture: Capture, cut: Cut, rank_of: Sequence[int]
) -> list[tuple[Parameter, list[int], Any]]:
    """Trained parameters that several stages read, their ranks, and the group of those (None for a single rank)."""
    groups: dict[tuple[int, ...], Any] = {}
    found: list[tuple[Parameter, list[int], Any]] = []
    for parameter in capture.parameters:
        ranks = sorted({rank_of[cut.stage_of[v]] for v in parameter.readers})
        if not parameter.trained or len({cut.stage_of[v] for v in parameter.readers}) < 2:
            continue
        if len(ranks) > 1 and tuple(ranks) not in groups:  # every rank makes every group, in the same order
            groups[tuple(ranks)] = dist.new_group(ranks)
        found.append((parameter, ranks, groups.get(tuple(ranks))))
    return found


def _add_gradient(parameter: Any, gradient: Any) -> None:
    if gradient is None:
        return
    parameter.grad = gradient.clone() if parameter.grad is None else parameter.grad + gradient


def _kind(shape: Sequence[int], dtype: Any) -> str:
    return f"{'x'.join(map(str, shape)) or 'a number'} of {str(dtype).removeprefix('torch.')}"
