"""The contract of a policy: what it sees, what it answers, how it is declared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
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
    """Merge now or not; ``score`` (finite or None) and ``reason`` go into the schedule."""

    merge: bool
    score: float | None = None
    reason: str = "policy"


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
    the instance.
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

    def begin(self, block: Block) -> None:  # noqa: B027  (most policies need nothing here)
        """Learn the block; called once before the first decision. ValueError when it can't run."""

    @abstractmethod
    def decide(self, observation: Observation) -> Decision:
        """Answer at one step boundary; called at each with a gap of at least ``h_min``."""
