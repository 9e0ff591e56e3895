"""The causality audit: no decision may depend on what comes after it.

Deployable policies are audited, not trusted: everything after a cut is exchanged, and what was
decided up to the cut must stay the same, for many cuts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from safesync.placement import Corridor
from safesync.policies.base import Decision, Observation, Policy
from safesync.policies.observe import ObservedTrace
from safesync.policies.replay import decide_schedule
from safesync.workload.streams import stream


@dataclass(frozen=True)
class Call:
    """One decision: when, after how many inner steps, with which gap, and the answer."""

    now_s: float
    step: int
    gap: int
    merge: bool
    score: float | None
    reason: str


@dataclass(frozen=True)
class Difference:
    """The first decision that changed; a side is None where no decision was asked for.

    ``cut_s`` is None when two runs on the very same trace differed.
    """

    cut_s: float | None
    expected: Call | None
    found: Call | None

    @property
    def now_s(self) -> float:
        """When it was made, s."""
        return min(call.now_s for call in (self.expected, self.found) if call is not None)

    @property
    def what(self) -> str:
        """Which parts of the decision changed, e.g. "merge, score"."""
        if self.expected is None or self.found is None:
            return "a decision more or less"
        one, other = asdict(self.expected), asdict(self.found)
        return ", ".join(name for name in one if one[name] != other[name])


@dataclass(frozen=True)
class Audit:
    """What the audit of one policy on one block found; ``cuts_s`` are those tried, s, rising."""

    policy: str
    cuts_s: tuple[float, ...]
    difference: Difference | None

    @property
    def passed(self) -> bool:
        """Whether every decision stayed the same."""
        return self.difference is None

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        if self.difference is None:
            return (
                f"{self.policy}: decisions up to {len(self.cuts_s)} cuts stayed the same when all "
                f"that follows was replaced."
            )
        found = self.difference
        how = (
            "when it ran again on the same trace"
            if found.cut_s is None
            else f"when only what follows {found.cut_s:g} s was replaced"
        )
        return f"{self.policy}: the decision at {found.now_s:g} s changed ({found.what}) {how}."

    def document(self) -> dict:
        """Return the result, JSON-serialisable."""
        return {
            "policy": self.policy,
            "passed": self.passed,
            "cuts_s": list(self.cuts_s),
            "difference": None if self.difference is None else asdict(self.difference),
            "sentence": self.sentence,
        }


class _PastTheCut(BaseException):
    """Ends a run whose further decisions are of no interest; no Exception, so no policy's fault."""


def audit(
    make: Callable[[], Policy],
    corridor: Corridor,
    trace: ObservedTrace,
    *,
    other: ObservedTrace | None = None,
    regime: str = "",
    seed: int = 0,
    cuts: int = 50,
) -> Audit:
    """Audit the deployable policy that ``make`` builds anew for each run.

    ``other`` supplies what follows the cuts, by default ``mirrored(trace)``. Half of the cuts are
    uniform over the span of the decisions; the others are instants of decisions, every merge first:
    a decision sees rows stamped *before* its own instant, so that a cut there is the tightest one.
    Cuts depend on (regime, seed) and the decisions alone. A first run repeats the trace unchanged,
    against state that outlives a policy.

    Raises ValueError for a policy that is not deployable, never merges, or fails on a block.
    """
    policy = make()
    if not (policy.deployable and policy.merges):
        raise ValueError(
            f"{policy.name}: only a deployable policy that merges can be audited for causality"
        )
    other = mirrored(trace, corridor.horizon_s) if other is None else other
    calls, rows = _run(policy, corridor, trace, regime, seed)
    again, _ = _run(make(), corridor, trace, regime, seed)
    difference = _first_difference(None, calls, again)
    chosen = _cuts(calls, corridor, cuts, stream("causality", regime, seed))
    for cut_s in chosen:
        if difference is not None:
            break
        changed_trace = trace.replaced_after(cut_s, _steps_done(rows, corridor, cut_s), other)
        changed, _ = _run(make(), corridor, changed_trace, regime, seed, until_s=cut_s)
        past = [call for call in calls if call.now_s <= cut_s]
        difference = _first_difference(cut_s, past, changed)
    return Audit(policy.name, tuple(chosen), difference)


def mirrored(trace: ObservedTrace, horizon_s: float) -> ObservedTrace:
    """Return ``trace`` backwards in time over [0, horizon_s], its pressures turned over as well.

    Each request keeps its duration; a pressure p becomes 1 - p, so that a flat one changes too.
    """
    inside = trace.arrival_s < horizon_s
    arrival_s = horizon_s - trace.arrival_s[inside]
    increments = np.diff(trace.tokens, axis=1, prepend=0)
    return ObservedTrace(
        arrival_s=arrival_s,
        done_s=arrival_s + (trace.done_s - trace.arrival_s)[inside],
        telemetry_s=trace.telemetry_s,
        pressures=1.0 - trace.pressures[:, ::-1],
        loss=trace.loss[:, ::-1],
        tokens=np.cumsum(increments[:, ::-1], axis=1),
    )


def _run(
    policy: Policy,
    corridor: Corridor,
    trace: ObservedTrace,
    regime: str,
    seed: int,
    until_s: float = np.inf,
) -> tuple[list[Call], pd.DataFrame | None]:
    """Return all decisions up to ``until_s``, and the schedule's rows when the run was whole."""
    calls: list[Call] = []
    decide = policy.decide

    def record(seen: Observation) -> Decision:
        if seen.now_s > until_s:
            raise _PastTheCut
        decision = decide(seen)
        if isinstance(decision, Decision):  # the engine refuses anything else
            answer = decision.merge, decision.score, decision.reason
            calls.append(Call(seen.now_s, seen.step, seen.gap, *answer))
        return decision

    policy.decide = record
    try:
        rows, _ = decide_schedule(policy, corridor, trace, regime=regime, seed=seed)
    except _PastTheCut:
        return calls, None
    return calls, rows


def _first_difference(
    cut_s: float | None, expected: list[Call], found: list[Call]
) -> Difference | None:
    for one, other in zip(expected, found, strict=False):
        if one != other:
            return Difference(cut_s, one, other)
    if len(expected) == len(found):
        return None
    at = min(len(expected), len(found))
    return Difference(
        cut_s,
        expected[at] if at < len(expected) else None,
        found[at] if at < len(found) else None,
    )


def _cuts(
    calls: list[Call], corridor: Corridor, count: int, rng: np.random.Generator
) -> list[float]:
    if not calls or not count:
        return []
    instants = rng.permutation([call.now_s for call in calls])
    merges = [call.now_s for call in calls if call.merge]
    tight = [*merges, *instants.tolist()][: count // 2]
    first = calls[0].now_s
    spread = rng.uniform(first, corridor.horizon_s, count - len(tight))
    return sorted([*tight, *spread.tolist()])


def _steps_done(rows: pd.DataFrame, corridor: Corridor, t_s: float) -> int:
    """Inner steps that learners on this schedule have done at ``t_s``."""
    pause_s = corridor.grid.pause * corridor.step_s
    paused_s = np.clip(t_s - rows["start_s"].to_numpy(), 0.0, pause_s).sum()
    return int((t_s - paused_s) / corridor.step_s + 1e-9)
