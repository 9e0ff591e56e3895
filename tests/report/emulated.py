"""A synthetic emulated tier, agreement, transfer and training runs, with truths set by hand."""

import numpy as np
import pandas as pd
from report.synthetic import study

from safesync.report.training import TrainingRun
from safesync.tables.agreement import AGREEMENT

POINTS_OFF = 2.5  # emulated less measured violation rate, of every replay


def agreement_document(**changes) -> dict:
    """Return the values of ``document.Agreement``: 2.5 points off, e2e p95 20 % too long."""
    figures = [
        ("e2e_p50_s", 1.0, 1.01),
        ("e2e_p95_s", 2.0, 2.4),
        ("e2e_p99_s", 3.0, 2.7),
        ("ttft_p50_s", 0.3, 0.299),
        ("ttft_p95_s", 0.5, 0.45),
    ]
    return {
        "replays": 24,
        "schedules": 20,
        "error_points": POINTS_OFF,
        "low_points": 1.5,
        "high_points": 3.5,
        "level": 0.9,
        "worst_points": -4.0,
        "noise_points": 1.25,
        "noise_nosync_points": 0.5,
        "repeated": 4,
        "within_noise": 17,
        "figures": [
            {
                "figure": name,
                "requests": 900,
                "measured": measured,
                "emulated": emulated,
                "relative_error": emulated / measured - 1,
            }
            for name, measured, emulated in figures
        ],
        "sentence": "Against 24 real replays the violation rate is off by +2.5 points on average.",
    } | changes


def emulated_regime(regime: str, **changes) -> dict:
    """Return the values of ``document.EmulatedRegime``, calibrated and with an agreement."""
    return {
        "regime": regime,
        "calibrated": True,
        "why": None,
        "warnings": [],
        "agreement": agreement_document(),
    } | changes


def emulated_scores(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the judged rows of a real study as those of the emulated tier."""
    judged = scores[scores["role"] == "judge"]
    return judged.assign(tier="emulator", violation_rate=judged["violation_rate"] * 0.9)


def agreement_rows(scores: pd.DataFrame) -> pd.DataFrame:
    """Return AGREEMENT rows of the judged rows of a real study."""
    rows = []
    for row in scores[(scores["role"] == "judge") & (scores["tier"] == "vllm")].itertuples():
        name = row.policy
        if name == "matched_random":
            name = f"{name}_{row.budget}"
        elif name == "matched_spacing":
            name = f"{name}_{row.control_of}"
        measured = {"violation_rate": row.violation_rate, "e2e_p95_s": row.e2e_p95_ok_s}
        for figure, value in measured.items():
            emulated = value + POINTS_OFF / 100 if figure == "violation_rate" else 1.2 * value
            rows.append(
                {
                    "run": row.run,
                    "regime": row.regime,
                    "seed": row.seed,
                    "policy": name,
                    "draw": row.draw,
                    "budget": row.budget,
                    "schedule": f"{name} {row.draw}",
                    "requests": row.requests,
                    "lost": 0,
                    "figure": figure,
                    "measured": value,
                    "emulated": emulated,
                    "error": emulated - value,
                    "relative_error": np.nan,
                }
            )
    return pd.DataFrame(rows, columns=AGREEMENT.schema.names)


def transfer_facts(regime: str, **changes) -> dict:
    """Return a document of gate 2: merges make requests 1.6 times as slow, the model says 1.5."""
    effects = {
        "windows": 24,
        "low": {"p95": 1.5, "mean": 1.3},
        "observed": {"p95": 2.0, "mean": 1.6},
        "predicted": {"p95": 2.2, "mean": 1.5},
    } | changes
    return {
        "regime": regime,
        "gate": {
            "name": "effect-size transfer",
            "passed": True,
            "figure": 1.3,
            "limit": 1.1,
            "sentence": "In 24 merge windows exposed requests took 1.60 times as long.",
            "refuses": True,
            "applies": True,
        },
        "effects": effects,
    }


def training_run(
    policy: str,
    draw: int,
    training_seed: int,
    final: float,
    *,
    block: int = 23,
    merges: tuple[int, ...] = (200, 500, 750, 1000),
    regime: str = "bursty",
) -> TrainingRun:
    """Return a run of 1,300 steps whose held-out loss falls to ``final``."""
    steps = np.arange(1, 1301)
    rng = np.random.default_rng(training_seed)
    curve = final + 3 * np.exp(-steps / 250)
    rows = pd.DataFrame(
        {
            "island": np.repeat([0, 1], steps.size),
            "step": np.tile(steps, 2),
            "loss": np.tile(curve, 2) + rng.normal(0, 0.08, 2 * steps.size),
        }
    )
    closed = [0, *merges, 1300]
    heldout = [{"step": at, "loss": float(final + 3 * np.exp(-at / 250))} for at in closed]
    heldout[-1]["loss"] = final
    facts = {
        "regime": regime,
        "seed": block,
        "policy": policy,
        "draw": draw,
        "training_seed": training_seed,
        "merges": list(merges),
        "merge_steps": closed[1:],
        "heldout": heldout,
        "final_heldout_loss": final,
    }
    return TrainingRun(facts, rows)


def training_runs(seeds=(1, 2, 3), worse: float = 0.0) -> list[TrainingRun]:
    """Return runs of a policy, fixed_h and three draws; the policy is ``worse``, nats."""
    runs = []
    for seed in seeds:
        base = 2.0 + 0.01 * seed
        runs.append(training_run("wa_forecast", 0, seed, base + worse))
        even = (256, 512, 768, 1024)
        runs.append(training_run("fixed_h_256", 0, seed, base + 0.005, merges=even))
        for draw, off in enumerate((-0.01, 0.0, 0.01)):
            moved = tuple(at + 40 * (draw - 1) for at in (200, 500, 750, 1000))
            runs.append(training_run("matched_random_4", draw, seed, base + off, merges=moved))
    return runs


def calibrated_study(blocks: int = 3, draws: int = 5, regime: str = "bursty") -> tuple:
    """Return a study whose scores hold the emulated tier too."""
    replays, scores, threshold = study(blocks=blocks, draws=draws, regime=regime)
    return replays, pd.concat([scores, emulated_scores(scores)], ignore_index=True), threshold
