"""The tier "emulator": schedules of a block on the calibrated emulator, as rows of SCORES.

Rows say what `protocol.scores.score` would say of the same replay's tables; they are computed for
all draws of a control at once. Emulated requests never fail, and nothing about them is late.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from safesync.emulator import EngineModel, Trace, Windows, latencies, simulate
from safesync.placement import Corridor, overlap_cost
from safesync.policies.controls import matched_random, matched_spacing
from safesync.protocol.blocks import CONTROL, NOSYNC, SPACING, is_policy
from safesync.protocol.calibrated import Calibrated
from safesync.protocol.gates import EMULATED_TIER
from safesync.protocol.percentiles import percentile_rows
from safesync.tables.arrivals import arrivals_sha256
from safesync.tables.scores import SCORES
from safesync.workload.streams import stream

IDENTITY = ("run", "regime", "kind", "seed", "role", "capture")
TELEMETRY_S = 0.2  # as the real telemetry samples
_TAIL_S = 1.0  # telemetry runs on so long after the horizon
_CHUNK_VALUES = 4_000_000  # latencies held at once: 64 MB
_QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, eq=False)
class Placement:
    """Schedules under one name: a policy's one, or the draws of a control.

    ``gaps``: inner steps, shape (draws, merges). ``control_of``: for matched spacing, the policy
    whose gaps they are.
    """

    policy: str
    gaps: np.ndarray
    control_of: str | None = None


def placements(
    policy: str, starts_s: np.ndarray, corridor: Corridor, draws: int, regime: str, seed: int
) -> list[Placement]:
    """Return a policy's schedule in a block, and its own gaps in other orders.

    ``starts_s``: merge starts, shape (merges,), seconds. ``draws``: of the other orders.
    """
    gaps = corridor.gaps_from_starts(np.asarray(starts_s, dtype=np.float64))
    orders = matched_spacing(corridor, gaps, draws, regime, seed)
    return [
        Placement(policy, gaps[None, :]),
        Placement(SPACING, _gaps(orders, corridor, draws, len(gaps)), policy),
    ]


def shared_placements(corridor: Corridor, draws: int, regime: str, seed: int) -> list[Placement]:
    """Return what all policies of a block share: no merges, and matched-random placements.

    ``draws``: of every budget that the corridor takes, whether a policy makes so many merges or
    not: what is drawn then depends on no policy. They are the draws that the real tier measures,
    and further ones.
    """
    return [
        Placement(NOSYNC, np.empty((1, 0), dtype=np.int64)),
        *(
            Placement(
                CONTROL,
                _gaps(
                    matched_random(corridor, budget, draws, regime, seed), corridor, draws, budget
                ),
            )
            for budget in corridor.grid.budgets()
        ),
    ]


def _gaps(rows: pd.DataFrame, corridor: Corridor, draws: int, budget: int) -> np.ndarray:
    """Return the gaps of SCHEDULE rows of so many draws, shape (draws, budget)."""
    return corridor.gaps_from_starts(rows["start_s"].to_numpy().reshape(draws, budget))


def merge_windows(
    starts_s: np.ndarray, merge_s: float, model: EngineModel, luck: Sequence[str | int]
) -> Windows:
    """Return the windows of a schedule as one repetition of the measurement could meet them.

    Windows contend more or less by chance. ``luck`` names the repetition: the k-th windows of all
    schedules of one luck contend alike, so that within a block they differ by placement alone.
    """
    spread = model.contention[0].spread
    return Windows.planned(starts_s, merge_s).varied(spread, stream("luck", *luck))


def emulated_capture(
    arrivals: pd.DataFrame, calibrated: Calibrated, horizon_s: float
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return REQUESTS and the observable columns of TELEMETRY of an emulated run without merges.

    It stands for the nosync capture of a block that was not measured. Requests running and waiting
    are those of the replay. Network and disk carry the mean rates of the calibration captures: the
    emulator knows nothing of them, so no policy can react to them here.
    """
    model = calibrated.model
    requests = simulate(Trace.from_rows(arrivals), Windows.none(), model).to_requests()
    t_s = np.arange(0.0, horizon_s + _TAIL_S, TELEMETRY_S)
    arrived = np.searchsorted(np.sort(requests["arrival_s"].to_numpy()), t_s, side="right")
    done = np.searchsorted(np.sort(requests["done_s"].to_numpy()), t_s, side="right")
    running = np.minimum(arrived - done, model.limits.max_num_seqs)
    telemetry = pd.DataFrame(
        {
            "t_s": t_s,
            "running": running.astype(float),
            "waiting": (arrived - done - running).astype(float),
            "network_bytes": (t_s * calibrated.network_bytes_per_s).astype(np.int64),
            "disk_written_bytes": (t_s * calibrated.disk_written_bytes_per_s).astype(np.int64),
        }
    )
    return requests, telemetry


def emulated_rows(
    schedules: Sequence[Placement],
    arrivals: pd.DataFrame,
    capture: pd.DataFrame,
    calibrated: Calibrated,
    corridor: Corridor,
    *,
    slo_metric: str,
    threshold_s: float,
    identity: Mapping,
) -> pd.DataFrame:
    """Return one row of SCORES per draw of ``schedules``, in one block.

    ``arrivals``: ARRIVALS of the block. ``capture``: REQUESTS of the run without merges that its
    policies observed, in which the overlap is counted. ``slo_metric``, ``threshold_s``: the
    objective. ``identity``: the values of ``IDENTITY``; ``capture`` there names the tier of that
    run. The excess is over the *emulated* run without merges.
    """
    trace = Trace.from_rows(arrivals)
    cost = overlap_cost(capture["arrival_s"].to_numpy(), capture["done_s"].to_numpy(), corridor)

    def replayed(gaps: np.ndarray) -> dict[str, np.ndarray]:
        luck = (identity["regime"], int(identity["seed"]))
        windows = [
            merge_windows(starts_s, corridor.merge_s, calibrated.model, luck)
            for starts_s in corridor.starts(gaps)
        ]
        return _replayed(trace, windows, calibrated.model, slo_metric, threshold_s)

    without = replayed(np.empty((1, 0), dtype=np.int64))["violation_rate"][0]
    shared = {name: identity[name] for name in IDENTITY} | {
        "tier": EMULATED_TIER,
        "requests": len(arrivals),
        "ok": len(arrivals),
        "failed": 0,
        "censored": 0,
        "offered_prompt_tokens": int(trace.prompt_tokens.sum()),
        "sent": len(arrivals),
        "arrivals_sha256": arrivals_sha256(arrivals),
        "lateness_p99_s": 0.0,
        "loop_lag_p99_s": np.nan,
        "valid": True,
        "invalid_reason": None,
        "fingerprint": calibrated.fingerprint,
    }
    frames = []
    for group in schedules:
        # an order of few gaps comes up in many draws
        distinct, which = np.unique(group.gaps, axis=0, return_inverse=True)
        which = which.ravel()
        figures = {name: values[which] for name, values in replayed(distinct).items()}
        budget = group.gaps.shape[1]
        # controls are drawn from the feasible set
        inside = not is_policy(group.policy) or corridor.feasible(group.gaps[0]) is None
        seconds = budget * corridor.merge_s
        frames.append(
            pd.DataFrame(
                shared
                | figures
                | {
                    "policy": group.policy,
                    "control_of": group.control_of,
                    "draw": np.arange(len(group.gaps), dtype=np.int32),
                    "budget": budget,
                    "excess_rate": figures["violation_rate"] - without,
                    "overlap": corridor.total_cost(group.gaps, cost),
                    "merge_seconds": seconds,
                    "planned_merge_seconds": seconds,
                    "feasible": inside,
                },
                columns=SCORES.schema.names,
            )
        )
    return pd.concat(frames, ignore_index=True)


def _replayed(
    trace: Trace, windows: list[Windows], model: EngineModel, metric: str, threshold_s: float
) -> dict[str, np.ndarray]:
    """Return the figures of SCORES that follow from latencies, shape (replays,) each."""
    size = max(1, _CHUNK_VALUES // trace.arrival_s.size)
    parts = []
    for first in range(0, len(windows), size):
        found = latencies(trace, windows[first : first + size], model)
        parts.append(_figures(found.e2e_s, found.ttft_s, trace.output_tokens, metric, threshold_s))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _figures(
    e2e_s: np.ndarray, ttft_s: np.ndarray, outputs: np.ndarray, metric: str, threshold_s: float
) -> dict[str, np.ndarray]:
    several = outputs > 1  # an answer of one token has no time per token
    values = {
        "e2e": e2e_s,
        "ttft": ttft_s,
        "tpot": (e2e_s - ttft_s)[:, several] / (outputs[several] - 1),
    }
    violations = (values[metric] > threshold_s).sum(axis=1)
    figures = {"violations": violations, "violation_rate": violations / e2e_s.shape[1]}
    for name, latency_s in values.items():
        found = percentile_rows(latency_s, tuple(_QUANTILES.values()))
        for quantile, column in zip(_QUANTILES, found.T, strict=True):
            figures[f"{name}_{quantile}_s"] = figures[f"{name}_{quantile}_ok_s"] = column
    return figures
