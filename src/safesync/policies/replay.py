"""The engine: walks a policy through a block, step by step, and enforces the corridor."""

import math

import numpy as np
import pandas as pd

from safesync.placement import Corridor
from safesync.policies import fairness, faults
from safesync.policies.base import Block, Decision, Observation, Policy
from safesync.policies.observe import ObservedTrace
from safesync.policies.schedule import budget_warnings, schedule_facts, schedule_rows
from safesync.workload.streams import stream

FORCED = "forced"


def decide_schedule(
    policy: Policy,
    corridor: Corridor,
    trace: ObservedTrace | None,
    *,
    regime: str = "",
    seed: int = 0,
    reference: pd.DataFrame | None = None,
) -> tuple[pd.DataFrame, dict]:
    """Return the schedule that a fresh ``policy`` makes on ``trace``, and its facts.

    ``decide`` is called at every step boundary with a gap of at least ``h_min`` from which a merge
    can still end inside the horizon. At ``h_max`` a merge is made even when the policy declines
    (reason "forced"); a forced merge that would not end inside the horizon is not made. So every
    result lies in the corridor's feasible set, the same as its controls. Learners do no step during
    a merge (unless the corridor overlaps merges).

    ``regime`` and ``seed`` name the block: a policy's random numbers are drawn from them.
    ``reference`` is a schedule for oracles and controls that copy its budget. ``trace`` may be
    None for a policy that never merges.

    Rows: SCHEDULE schema, draw 0; reason "policy" (or what the policy says) or "forced". Facts
    (JSON-serialisable): those of ``schedule_facts`` and ``policy``, ``parameters``, ``deployable``,
    ``regime``, ``seed``, ``forced_share``, ``inert_signals`` and ``warnings`` (sentences).

    Raises ValueError when the policy refuses the block, its own code fails or answers no Decision
    (with the place in its file), a signal is missing, or a score is not finite; RuntimeError when
    the schedule is not feasible (a defect here).
    """
    if policy.merges:
        if trace is None:
            raise ValueError(f"{policy.name}: needs the observable trace of its block")
        gaps, decisions = _walk(policy, corridor, trace, regime, seed, reference)
        broken = corridor.feasible(gaps)
        if broken is not None:
            raise RuntimeError(f"{policy.name}: the engine left the corridor: {broken}")
        warnings = [] if policy.caution is None else [policy.caution]
        warnings += budget_warnings(corridor, len(gaps))
        fixed = corridor.fixed_period(gaps)
        warnings += [] if fixed is None else [fixed]
    else:
        gaps, decisions, warnings = np.empty(0, dtype=np.int64), [], []
    forced = sum(decision.reason == FORCED for decision in decisions)
    if 2 * forced > len(gaps):
        warnings.append(
            f"{forced} of {len(gaps)} merges were forced at h_max = {corridor.h_max}: the "
            f"corridor, not {policy.name}, placed most of this schedule."
        )
    guarded = sum(decision.reason == fairness.REASON for decision in decisions)
    if 2 * guarded > len(gaps):
        warnings.append(
            f"{guarded} of {len(gaps)} merges were made by the fairness guard: max_staleness_s, "
            f"not {policy.name}'s score, placed most of this schedule."
        )
    rows = schedule_rows(
        corridor, gaps[None, :], [d.reason for d in decisions], [d.score for d in decisions]
    )
    facts = schedule_facts(corridor, len(gaps)) | {
        "policy": policy.name,
        "parameters": policy.parameters.model_dump(mode="json"),
        "deployable": policy.deployable,
        "regime": regime,
        "seed": seed,
        "forced_share": forced / len(gaps) if len(gaps) else 0.0,
        "inert_signals": [] if trace is None else list(trace.inert),
        "warnings": warnings,
    }
    return rows, facts


def _walk(
    policy: Policy,
    corridor: Corridor,
    trace: ObservedTrace,
    regime: str,
    seed: int,
    reference: pd.DataFrame | None,
) -> tuple[np.ndarray, list[Decision]]:
    block = Block(
        corridor=corridor,
        islands=trace.islands,
        rng=stream("policy", policy.name, regime, seed),
        trace=None if policy.deployable else trace,
        reference=None if policy.deployable else reference,
    )
    try:
        policy.begin(block)
    except (Exception, SystemExit) as error:
        if faults.on_purpose(policy, error):
            raise
        raise ValueError(faults.failure(policy, "begin", "", error)) from error
    gaps: list[int] = []
    decisions: list[Decision] = []
    while (merge := _next_merge(policy, corridor, trace, gaps)) is not None:
        gaps.append(merge[0])
        decisions.append(merge[1])
    return np.array(gaps, dtype=np.int64), decisions


def _next_merge(
    policy: Policy, corridor: Corridor, trace: ObservedTrace, gaps: list[int]
) -> tuple[int, Decision] | None:
    """Return the next gap with its decision, None when no further merge is made."""
    grid = corridor.grid
    done = sum(gaps)
    paused = len(gaps) * grid.pause
    left = grid.last_start - paused - done
    for gap in range(corridor.h_min, min(corridor.h_max, left) + 1):
        decision = _decision(policy, trace.observe(corridor, done, gap, len(gaps)))
        if decision.score is not None and not math.isfinite(decision.score):
            raise ValueError(
                f"{policy.name}: score {decision.score} at step {done + gap} is not finite"
            )
        if decision.merge:
            return gap, decision
        if gap == corridor.h_max:
            return gap, Decision(merge=True, score=decision.score, reason=FORCED)
    return None


def _decision(policy: Policy, observation: Observation) -> Decision:
    """Ask ``policy``; whatever fails in its own code is a ValueError that says where."""
    try:
        decision = policy.decide(observation)
    except (Exception, SystemExit) as error:
        if faults.on_purpose(policy, error):
            raise
        when = f" at {observation.now_s:g} s"
        raise ValueError(faults.failure(policy, "decide", when, error)) from error
    if not isinstance(decision, Decision):
        raise ValueError(faults.no_decision(policy, f" at {observation.now_s:g} s", decision))
    return decision
