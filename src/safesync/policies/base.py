"""The contract of a policy: what it sees, what it answers, how it is declared."""

from __future__ import annotations

import re
import reprlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from safesync.placement import Corridor

if TYPE_CHECKING:
    import pandas as pd

    from safesync.policies.observe import ObservedTrace


@dataclass(frozen=True, slots=True)
class Signals:
    """Pressures in [0, 1], from the last telemetry rows stamped strictly before ``now_s``."""

    network: float
    serving: float
    checkpoint: float


@dataclass(frozen=True, slots=True)
class Observation:
    """All that a policy may know at one step boundary: rows stamped before ``now_s`` only.

    It is taken from the block's nosync capture (open loop: the backlog that a policy's own merges
    cause is not in it).
    """

    now_s: float  #: seconds since t0
    step: int  #: inner steps done
    gap: int  #: inner steps since the last merge, or since the start
    merges: int  #: merges made so far
    h_min: int
    h_max: int
    step_s: float
    merge_s: float
    horizon_s: float
    counts_per_s: (
        np.ndarray
    )  #: arrivals in each completed second [k, k + 1), shape (floor(now),), read-only
    in_flight: int  #: requests that have arrived and are not done
    signals: Signals
    loss_drop: np.ndarray  #: fall of each island's loss over the gap, nats, shape (islands,)
    tokens: np.ndarray  #: tokens each island trained on in the gap, shape (islands,)
    staleness_s: np.ndarray  #: time since each island last left a merge (or t0), shape (islands,)


@dataclass(frozen=True, slots=True)
class Decision:
    """Merge now or not; ``score`` (finite or None) and ``reason`` go into the schedule.

    Truth values and numbers of numpy become Python's; any other type is a ValueError.
    """

    merge: bool
    score: float | None = None
    reason: str = "policy"

    def __post_init__(self) -> None:
        """Check the types; quick for the right ones, for there is one per step boundary."""
        if type(self.merge) is not bool:
            if not isinstance(self.merge, np.bool_):
                raise ValueError(_wrong_type("merge", "True or False", self.merge))
            object.__setattr__(self, "merge", bool(self.merge))
        if self.score is not None and type(self.score) is not float:
            if not isinstance(self.score, Real) or isinstance(self.score, bool):
                raise ValueError(_wrong_type("score", "a number or None", self.score))
            object.__setattr__(self, "score", float(self.score))
        if not isinstance(self.reason, str):
            raise ValueError(_wrong_type("reason", "text", self.reason))


def shown(value: object) -> str:
    """Return ``value`` and its type for an error message, short and on one line."""
    if value is None:
        return "None"
    return f"{' '.join(reprlib.repr(value).split())} ({type(value).__name__})"


def _wrong_type(field: str, expected: str, found: object) -> str:
    return f"a Decision's {field} must be {expected}, found {shown(found)}"


@dataclass(frozen=True)
class Block:
    """What a policy is told once, before the first decision.

    ``rng`` is the policy's own random stream in this block, the same in every run; regime and seed
    are withheld, for the arrivals could be generated anew from them. ``trace`` (the whole block,
    future included) and ``reference`` (another policy's schedule of this block, SCHEDULE schema,
    for one that copies its budget or gaps) are None for deployable policies.
    """

    corridor: Corridor
    islands: int
    rng: np.random.Generator
    trace: ObservedTrace | None = None
    reference: pd.DataFrame | None = None


class NoParameters(BaseModel):
    """Parameters of a policy that has none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Policy(ABC):
    """One synchronization policy; constructed anew for every schedule, so it may keep state.

    A subclass sets ``name`` (as in configs, and its file's name), ``Parameters`` (a pydantic model
    with extra="forbid"), ``deployable`` (sees the past only; oracles and random controls say
    False), and a docstring with its source. An instance may be less deployable than its class: ask
    the instance. It defines ``decide``; ``begin`` if it needs to know its block or keeps state
    (calling ``super().begin(block)``); and ``check`` if some of its parameters can never run in
    some corridor, so that a config is refused before anything is measured.
    """

    name: ClassVar[str]
    Parameters: ClassVar[type[BaseModel]] = NoParameters
    deployable: ClassVar[bool] = True
    #: False: it never merges, and no corridor is enforced
    merges: ClassVar[bool] = True
    #: a sentence that every schedule of this policy carries as a warning
    caution: ClassVar[str | None] = None

    def __init__(self, parameters: BaseModel | None = None) -> None:
        """Take ``parameters`` (an instance of ``Parameters``), or their defaults."""
        self.parameters = self.Parameters() if parameters is None else parameters
        if not isinstance(self.parameters, self.Parameters):
            raise TypeError(
                f"{self.name}: parameters must be {self.Parameters.__qualname__}, found "
                f"{type(self.parameters).__qualname__}"
            )

    @classmethod
    def summary(cls) -> str:
        """Return what it does: the first sentence of its docstring, without marks; '' without."""
        first = re.split(r"\.(?:\s|$)", cls.__doc__ or "", maxsplit=1)[0]
        return " ".join(first.replace("``", "").split())

    @classmethod  # noqa: B027  (most policies run in every corridor)
    def check(cls, parameters: BaseModel, h_min: int, h_max: int, step_s: float) -> None:
        """Refuse ``parameters`` that can never run in this corridor, whatever the block.

        ValueError, in one sentence that names the policy and the parameter; by default nothing is
        refused. A config is checked so, and ``begin`` does it again. ``parameters`` is an instance
        of ``Parameters``; ``h_min`` and ``h_max`` count inner steps of ``step_s`` seconds.
        """

    def begin(self, block: Block) -> None:
        """Learn the block; called once before the first decision. ValueError when it can't run."""
        corridor = block.corridor
        self.check(self.parameters, corridor.h_min, corridor.h_max, corridor.step_s)

    @abstractmethod
    def decide(self, observation: Observation) -> Decision:
        """Answer at one step boundary; called at each with a gap of at least ``h_min``."""
