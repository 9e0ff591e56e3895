"""Synthetic SCORES tables with a known truth."""

import numpy as np
import pandas as pd

from safesync.tables.scores import SCORES

RUN_FACTS = {"thresholds_s": {"bursty": 2.0}, "horizon_s": 100.0, "replay_s": 150.0}


def row(policy: str, seed: int, rate: float, *, draw: int = 0, budget: int = 4, **changes) -> dict:
    """Return one SCORES row of 1000 requests with violation rate ``rate``."""
    values = dict.fromkeys(SCORES.schema.names, np.nan)
    values |= {
        "run": "planted",
        "tier": "vllm",
        "regime": "bursty",
        "kind": "bursty",
        "seed": seed,
        "role": "judge",
        "policy": policy,
        "draw": draw,
        "budget": budget,
        "requests": 1000,
        "ok": 1000,
        "failed": 0,
        "censored": 0,
        "violations": round(1000 * rate),
        "violation_rate": rate,
        "excess_rate": rate - 0.001,
        "overlap": 100,
        "offered_prompt_tokens": 64_000,
        "sent": 1000,
        "arrivals_sha256": f"trace-{seed}",
        "lateness_p99_s": 0.01,
        "loop_lag_p99_s": 0.005,
        "merge_seconds": 8.0 * budget,
        "planned_merge_seconds": 8.0 * budget,
        "feasible": True,
        "valid": True,
        "invalid_reason": None,
        "fingerprint": "machine-1",
        "control_of": None,
        "capture": "vllm",
    }
    return values | changes


def study(
    effect: float,
    *,
    blocks: int = 6,
    draws: int = 19,
    noise: float = 0.004,
    seed: int = 0,
    policy: str = "wa",
    **changes,
) -> pd.DataFrame:
    """Return a study in which ``policy`` differs from its draws by ``effect`` (a rate).

    ``changes`` apply to the policy's rows.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for block in range(blocks):
        level = 0.10 + 0.02 * rng.standard_normal()
        rows.append(row("nosync", block, 0.001, budget=0))
        rows.append(row("fixed_h_256", block, level + 0.05, budget=6))
        rows.append(row(policy, block, level + effect + noise * rng.standard_normal(), **changes))
        rows += [
            row("matched_random", block, level + noise * rng.standard_normal(), draw=draw)
            for draw in range(draws)
        ]
    return pd.DataFrame(rows)
