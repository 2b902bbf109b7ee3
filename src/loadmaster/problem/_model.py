"""The four execution models: what "time" means for a placement.

A :class:`Problem` names exactly one of them, and every placer, bound and report uses that one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import ClassVar, Literal, get_args, get_type_hints

from loadmaster.errors import InputError
from loadmaster.files import shown

__all__ = [
    "MODELS",
    "Concurrent",
    "ExecutionModel",
    "Offload",
    "Pipeline",
    "Serial",
    "execution_model",
    "named_model",
]


@dataclass(frozen=True)
class ExecutionModel:
    """Base of the four; ``name`` is what the command line and files call it."""

    name: ClassVar[str]

    @property
    def settings(self) -> dict[str, str | int]:
        """The settings by name, as files and JSON output carry them."""
        return asdict(self)

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            value, choices = getattr(self, field.name), get_args(hints[field.name])
            if choices and value not in choices:
                raise InputError(
                    f"the setting {field.name}={shown(value)} of the {self.name} model is invalid: choose one of "
                    + ", ".join(map(str, choices))
                )


@dataclass(frozen=True)
class Serial(ExecutionModel):
    """Ops run one after another, whatever their device: the sum of op times and transfers (OpenVINO's
    HETERO)."""

    name: ClassVar[str] = "serial"


@dataclass(frozen=True)
class Concurrent(ExecutionModel):
    """All devices work at once: the makespan of a discrete-event schedule."""

    name: ClassVar[str] = "concurrent"
    schedule: Literal["event", "static"] = "event"
    """``event``: a free device takes its best ready op; ``static``: it waits for the next op of the fixed
    order."""
    memory: Literal["sum", "peak"] = "sum"
    """What must fit into a device: everything placed on it, or the peak of what is alive at once."""


@dataclass(frozen=True)
class Pipeline(ExecutionModel):
    """A stream of samples: the largest load of any device, i.e. the time per sample of the saturated
    pipeline."""

    name: ClassVar[str] = "pipeline"
    contiguity: Literal["none", "device", "chain"] = "none"
    """``device``: the forward ops of each device are convex; ``chain``: the devices' quotient graph is
    acyclic."""
    comm: Literal["sum", "overlap"] = "sum"
    """Transfers add to compute, or overlap with it (the larger of the two)."""
    objective: Literal["sum", "fw+bw"] = "sum"
    """Largest forward + backward load of one device (1F1B), or largest forward + largest backward (flush)."""
    microbatches: int = 0
    """0: the saturated pipeline above. M: the time of one step of M microbatches under ``schedule``, as
    ``torch.distributed.pipelining`` runs it; the devices then form a chain."""
    schedule: Literal["1f1b", "gpipe"] = "1f1b"
    """In what order a rank runs the forward and backward passes of the microbatches of a step."""
    stages_per_rank: int = 1
    """Interleaved stages: stage s is on rank s modulo the number of ranks."""
    checkpoint: Literal["never", "auto"] = "never"
    """``auto``: a stage that does not fit otherwise keeps only its input and computes its forward pass again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least, most in (("microbatches", 0, MOST_MICROBATCHES), ("stages_per_rank", 1, 64)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise InputError(f"{name} must be a whole number from {least} to {most}, not {shown(value)}")
        if not self.microbatches:
            for name, usual in (("schedule", "1f1b"), ("stages_per_rank", 1), ("checkpoint", "never")):
                if getattr(self, name) != usual:
                    raise InputError(
                        f"the setting {name}={getattr(self, name)} of the pipeline model needs microbatches: "
                        "give their number"
                    )
            return
        for name, usual in (("comm", "sum"), ("objective", "sum")):
            if getattr(self, name) != usual:
                raise InputError(
                    f"the setting {name}={getattr(self, name)} of the pipeline model is for the saturated pipeline: "
                    "leave it out with microbatches, where the schedule says what overlaps"
                )
        if self.contiguity == "device":
            raise InputError("contiguity=device: with microbatches the devices form a chain; leave it out")
        if self.stages_per_rank > 1 and self.schedule != "1f1b":
            raise InputError(
                f"stages_per_rank={self.stages_per_rank} needs schedule=1f1b, not {self.schedule}: "
                "interleaved stages have no other"
            )
        object.__setattr__(self, "contiguity", "chain")

    @property
    def settings(self) -> dict[str, str | int]:
        """The settings by name; without microbatches only those that a saturated pipeline has."""
        names = SATURATED if not self.microbatches else STEP
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        return f"Pipeline({', '.join(f'{name}={value!r}' for name, value in self.settings.items())})"


MOST_MICROBATCHES = 4096
"""A step has at most so many: its schedule is simulated action by action."""
SATURATED = ("contiguity", "comm", "objective")
"""Settings of ``pipeline`` without microbatches,"""
STEP = ("microbatches", "schedule", "stages_per_rank", "checkpoint")
"""and with them."""


@dataclass(frozen=True)
class Offload(ExecutionModel):
    """One sample; accelerators are called with whole subgraphs: the finish of the last call or CPU op."""

    name: ClassVar[str] = "offload"
    max_calls: int = 1
    """How many subgraphs one accelerator may be called with."""

    def __post_init__(self) -> None:
        whole = isinstance(self.max_calls, int) and not isinstance(self.max_calls, bool)
        if not whole or not 1 <= self.max_calls < 2**31:
            raise InputError(
                f"max_calls must be a whole number >= 1 and < 2**31, not {shown(self.max_calls)}"
            )


MODELS: dict[str, type[ExecutionModel]] = {m.name: m for m in (Serial, Concurrent, Pipeline, Offload)}


def execution_model(name: str, /, **settings: str | int | None) -> ExecutionModel:
    """The execution model called ``name`` with the given settings; those that are None keep their default.

    >>> execution_model("pipeline", comm="overlap")
    Pipeline(contiguity='none', comm='overlap', objective='sum')

    Raises
    ------
    InputError : the model is unknown, or a setting is unknown to it or has an unknown value.
    """
    if name not in MODELS:
        raise InputError(f"the execution model {shown(name)} is unknown: choose one of {', '.join(MODELS)}")
    model = MODELS[name]
    known = {field.name for field in fields(model)}
    given = {key: value for key, value in settings.items() if value is not None}
    for key in given:
        if key not in known:
            its = f"its settings are {', '.join(sorted(known))}" if known else "it has none"
            raise InputError(f"the {name} model has no setting {shown(key)}: {its}")
    return model(**given)


def named_model(text: str) -> ExecutionModel:
    """The execution model that a text names, with the settings behind a colon.

    A setting is ``NAME=VALUE``, or the value alone where only one setting of the model has it.

    >>> named_model("serial")
    Serial()
    >>> named_model("pipeline:chain,comm=overlap")
    Pipeline(contiguity='chain', comm='overlap', objective='sum')

    Raises
    ------
    InputError : the model is unknown, or a setting is unknown to it or has an unknown value.
    """
    name, _, rest = text.partition(":")
    if name not in MODELS:
        return execution_model(name)
    settings: dict[str, str | int | None] = {}
    for entry in filter(None, (entry.strip() for entry in rest.split(","))):
        key, separator, value = entry.partition("=")
        if not separator:
            key, value = _setting_with(name, entry), entry
        if key in settings:
            raise InputError(f"the execution model {shown(text)} has the setting {key!r} twice")
        settings[key] = int(value) if value.isdecimal() and len(value) < 10 else value
    return execution_model(name, **settings)


def _setting_with(name: str, value: str) -> str:
    """The one setting of a model that can have a value."""
    hints = get_type_hints(MODELS[name])
    names = [
        field.name
        for field in fields(MODELS[name])
        if value in get_args(hints[field.name]) or (hints[field.name] is int and value.isdecimal())
    ]
    if len(names) != 1:
        choices = " or ".join(f"{key}={value}" for key in names)
        if choices:
            raise InputError(f"the {name} model: {shown(value)} may be two settings: write {choices}")
        raise InputError(f"the {name} model has no setting {shown(value)}: write NAME=VALUE")
    return names[0]
