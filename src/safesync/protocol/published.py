"""A published study under this protocol: its numbers computed anew, and what may be claimed.

Source of the figures: "Not all synchronization is safe": calibrated DiLoCo scheduling for shared AI
infrastructure (resources/published/README.md). The figures go through the same functions as a run
of this project; whatever they do not hold is said to be missing, never assumed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from scipy import stats

from safesync.protocol.blocks import CONTROL
from safesync.protocol.gates import Scope, not_available
from safesync.protocol.statistics import PValue, holm, sign_flip_test
from safesync.protocol.verdict import judge
from safesync.tables.scores import SCORES

COLUMNS = (
    *("stage", "regime", "policy", "seed", "basis", "runs", "requests", "p95_ms", "p99_ms"),
    *("violation_rate", "tokens_per_s", "p95_ratio_pressure", "p95_ratio_merge"),
    *("requests_in_merge", "merges"),
)
RANDOM = "random_matched"  # the study's control; it is not uniform over the corridor
BASELINES = ("fixed_h_256", "fixed_h_512")
CLAIMS = {
    "steady": ("wa_diloco",),
    "pressure": ("wa_diloco",),
    "bursty": ("wa_diloco", "offline_calibrated", "online_calibrated"),
}
# Found in the study's artifact, which holds the schedules; the figures do not.
OUTSIDE_CORRIDOR = {("bursty", RANDOM), ("bursty", "offline_calibrated")}
HORIZON_S = 600.0
THRESHOLD_S = 1.0
_CONTENDED = ("vllm-1p5b-pressure-heavy", "vllm-1p5b-sync-heavy")

_MEANS = {
    ("steady", "fixed_h_256"): "19.21",
    ("steady", "fixed_h_512"): "11.04",
    ("steady", "pressure_gate"): "13.73",
    ("steady", "pressure_gate_matched"): "11.93",
    ("steady", RANDOM): "6.38",
    ("steady", "wa_diloco"): "6.46",
    ("bursty", "fixed_h_256"): "19.01",
    ("bursty", "fixed_h_512"): "10.95",
    ("bursty", "pressure_gate"): "12.65",
    ("bursty", RANDOM): "6.26",
    ("bursty", "wa_diloco"): "6.92",
    ("bursty", "offline_calibrated"): "4.45",
    ("bursty", "online_calibrated"): "5.92",
}

_WHY = {
    "steady": "The study repeats short schedules over the run, so the merges that it lists are not "
    "those of the run, and how often a policy merges is not held apart from where. Its random "
    "control is not uniform over the corridor.",
    "pressure": "Every run is saturated: a third of all requests violate, whatever the schedule, "
    "and the file holds one random schedule per seed.",
    "bursty": "All 25 random schedules of the study leave the corridor, so there is no control of "
    "the same budget and corridor to compare with; of their rates the file holds the mean only, "
    "so there is no envelope either.",
}

_ALSO = {
    "offline_calibrated": " Its own schedules leave the corridor too: it is greedy, and no bound.",
}

Status = Literal[
    "recomputed",
    "recomputed, rounded twice",
    "differs",
    "quoted, not recomputable",
    "not in the study",
]


@dataclass(frozen=True)
class Finding:
    """One number of the study.

    ``quoted``: as printed there, None when the study does not give it. ``value``: computed from
    the figures, None when they do not carry it. ``how``: what computed it, or what is missing.
    """

    what: str
    unit: str
    quoted: str | None
    value: float | None
    how: str

    @property
    def status(self) -> Status:
        """Whether ``value`` rounds to ``quoted`` at the digits that were printed.

        Rounded twice: to one digit more first, so that 11.0347 becomes 11.035 and then 11.04.
        """
        if self.value is None:
            return "quoted, not recomputable"
        if self.quoted is None:
            return "not in the study"
        printed = Decimal(self.quoted)
        unit = Decimal(1).scaleb(printed.as_tuple().exponent)
        value = Decimal(repr(self.value))
        if value.quantize(unit, ROUND_HALF_UP) == printed:
            return "recomputed"
        finer = value.quantize(unit / 10, ROUND_HALF_UP)
        twice = finer.quantize(unit, ROUND_HALF_UP) == printed
        return "recomputed, rounded twice" if twice else "differs"


@dataclass(frozen=True)
class Reading:
    """What the protocol says of one claim of the study.

    ``result``: its part of the verdict document. ``lenient``: the same if every schedule had kept
    the corridor, which is what the statistics alone give. ``why``: what stands in the way.
    """

    regime: str
    policy: str
    result: dict
    lenient: dict
    why: str


def read_figures(path: str | Path) -> pd.DataFrame:
    """Return the figures, one row per run or mean; ValueError names what is wrong with the file."""
    figures = pd.read_csv(path, dtype={"seed": "Int64"})
    if list(figures.columns) != list(COLUMNS):
        raise ValueError(f"{path}: expected the columns {', '.join(COLUMNS)}")
    key = ["stage", "regime", "policy", "seed", "basis"]
    twice = figures[figures.duplicated(key)]
    if len(twice):
        found = ", ".join(f"{name} {twice.iloc[0][name]}" for name in key)
        raise ValueError(f"{path}: {len(twice)} rows stand twice, the first: {found}")
    return figures


def rates(figures: pd.DataFrame, regime: str, policy: str) -> pd.Series:
    """Return the violation rate per seed, index seed; empty where only means were published."""
    rows = figures[
        (figures["regime"] == regime)
        & (figures["policy"] == policy)
        & figures["basis"].isin(["run", "reconstructed"])
    ]
    return rows.set_index("seed")["violation_rate"].sort_index()


def mean_rate(figures: pd.DataFrame, regime: str, policy: str) -> float:
    """Return the mean violation rate of a policy: as published, else over its runs."""
    rows = figures[(figures["regime"] == regime) & (figures["policy"] == policy)]
    published = rows[rows["basis"] == "mean"]["violation_rate"]
    if len(published):
        return float(published.iloc[0])
    return float(rows[rows["basis"] == "run"]["violation_rate"].mean())


def paired(figures: pd.DataFrame, regime: str, policy: str, other: str) -> list[float]:
    """Return ``policy`` minus ``other`` per seed, rates; ValueError when their seeds differ."""
    one, two = rates(figures, regime, policy), rates(figures, regime, other)
    if list(one.index) != list(two.index) or one.empty:
        raise ValueError(f"{regime}: {policy} and {other} have no runs of the same seeds to pair")
    return (one - two).tolist()


def pooled_sd(figures: pd.DataFrame, regime: str) -> float:
    """Return the SD of the rate within policies, pooled (root of the mean variance), a rate."""
    runs = _runs(figures, regime)
    return float(np.sqrt(runs.groupby("policy")["violation_rate"].var(ddof=1).mean()))


def merge_share_fit(figures: pd.DataFrame, regime: str) -> tuple[float, float, float]:
    """Return R^2, slope and intercept of the violation rate on the share served during merges."""
    runs = _runs(figures, regime)
    fit = stats.linregress(runs["requests_in_merge"] / runs["requests"], runs["violation_rate"])
    return float(fit.rvalue**2), float(fit.slope), float(fit.intercept)


def findings(figures: pd.DataFrame) -> list[Finding]:
    """Return every number of the study that is known, computed anew where the figures allow."""
    return [*_rates(figures), *_tests(figures), *_spread(figures), *_out_of_reach(figures)]


def readings(figures: pd.DataFrame) -> list[Reading]:
    """Return what the protocol says of each claim, by regime.

    Each regime is a study of its own with its own claims under Holm, which is the most lenient
    reading. Its random schedules stand as the one draw of a block: in bursty the file holds only
    the mean of five.
    """
    found = []
    for regime, claims in CLAIMS.items():
        strict, lenient = (
            {result["policy"]: result for result in _judge(figures, regime, claims, corridor)}
            for corridor in (True, False)
        )
        found += [
            Reading(
                regime, claim, strict[claim], lenient[claim], _WHY[regime] + _ALSO.get(claim, "")
            )
            for claim in claims
        ]
    return found


def score_rows(figures: pd.DataFrame, regime: str, *, corridor: bool) -> pd.DataFrame:
    """Return the runs of a regime as SCORES rows; what the figures do not hold is missing.

    ``corridor``: whether schedules known to leave it are marked so. A reconstructed rate carries no
    count of requests; it takes that of the measured run of its seed, which only turns a gain into
    requests.
    """
    runs = figures[(figures["regime"] == regime) & figures["basis"].isin(["run", "reconstructed"])]
    requests = runs.groupby("seed")["requests"].transform("first")
    rows = []
    for (_, run), offered in zip(runs.iterrows(), requests, strict=True):
        outside = (regime, run["policy"]) in OUTSIDE_CORRIDOR
        rows.append(
            dict.fromkeys(SCORES.schema.names, np.nan)
            | {
                "run": "published",
                "tier": "vllm",
                "regime": regime,
                "kind": regime,
                "seed": int(run["seed"]),
                "role": "judge",
                "policy": CONTROL if run["policy"] == RANDOM else run["policy"],
                "draw": 0,
                "budget": int(run["merges"]),
                "capture": "unknown",
                "requests": int(offered),
                "violation_rate": run["violation_rate"],
                "feasible": not (corridor and outside),
                "valid": True,
                "fingerprint": None,
            }
        )
    return pd.DataFrame(rows)


def _judge(figures: pd.DataFrame, regime: str, claims: Sequence[str], corridor: bool) -> list[dict]:
    missing = {
        "effect-size transfer": "The figures hold no request and no run without merges.",
        "causality": "The figures hold no decision of a policy.",
        "training parity": "The figures hold no loss of a training run on these schedules.",
    }
    return judge(
        score_rows(figures, regime, corridor=corridor),
        {},
        claims,
        thresholds_s={regime: THRESHOLD_S},
        horizon_s=HORIZON_S,
        replay_s=HORIZON_S,
        baselines=BASELINES,
        seeds={"judge": sorted(set(_runs(figures, regime)["seed"]))},
        given_gates=[(Scope(), not_available(name, said)) for name, said in missing.items()],
    )["verdicts"]


def _runs(figures: pd.DataFrame, regime: str) -> pd.DataFrame:
    return figures[(figures["regime"] == regime) & (figures["basis"] == "run")]


def _rates(figures: pd.DataFrame) -> Iterator[Finding]:
    for (regime, policy), quoted in _MEANS.items():
        run = set(_runs(figures, regime)["policy"])
        yield Finding(
            f"{regime}: violation rate of {policy}",
            "%",
            quoted,
            100 * mean_rate(figures, regime, policy),
            "mean of 5 runs" if policy in run else "mean, as the artifact holds it",
        )


def _tests(figures: pd.DataFrame) -> Iterator[Finding]:
    def flip(regime: str, policy: str, other: str, side: str = "less") -> tuple[float, PValue]:
        differences = paired(figures, regime, policy, other)
        return 100 * float(np.mean(differences)), sign_flip_test(differences, alternative=side)

    one_sided, both = "sign flips, one-sided", "sign flips, two-sided"
    points, test = flip("steady", "wa_diloco", RANDOM)
    name = "steady: wa_diloco minus random"
    yield Finding(name, "points", "0.073", points, "mean of 5 pairs")
    yield Finding(name, "p", "0.5625", test.p, one_sided)
    _, test = flip("steady", "wa_diloco", RANDOM, "two-sided")
    yield Finding(name, "p", "0.9375", test.p, both)
    for other, points_said, p_said in (
        (RANDOM, "-0.337", "0.344"),
        ("wa_diloco", "-0.994", "0.0625"),
    ):
        points, test = flip("bursty", "online_calibrated", other)
        name = f"bursty: online_calibrated minus {'random' if other == RANDOM else other}"
        yield Finding(name, "points", points_said, points, "mean of 5 pairs, other side rebuilt")
        yield Finding(name, "p", p_said, test.p, one_sided)
    points, test = flip("bursty", "offline_calibrated", RANDOM)
    name = "bursty: offline_calibrated minus random"
    yield Finding(name, "points", None, points, "mean of 5 pairs, both sides rebuilt")
    yield Finding(name, "p", None, test.p, one_sided)
    yield Finding(name, "p", None, test.smallest, "the smallest that 5 pairs can give")


def _spread(figures: pd.DataFrame) -> Iterator[Finding]:
    yield Finding(
        "run-to-run noise of the violation rate",
        "points",
        "1.19",
        100 * pooled_sd(figures, "pressure"),
        "SD within policies over seeds, pooled, pressure",
    )
    policies = sorted(set(_runs(figures, "pressure")["policy"]))
    p_values = [
        sign_flip_test(paired(figures, "pressure", *pair), alternative="two-sided").p
        for pair in combinations(policies, 2)
    ]
    yield Finding(
        "pressure: lowest violation rate of any run",
        "%",
        None,
        100 * float(_runs(figures, "pressure")["violation_rate"].min()),
        "the study: all saturated",
    )
    yield Finding(
        "pressure: smallest p of any two policies",
        "p",
        None,
        min(holm(p_values)),
        f"the study: none dominates; sign flips, two-sided, Holm over {len(p_values)} pairs",
    )
    calm = _runs(figures, "calibration").query("policy not in @_CONTENDED")
    yield Finding(
        "ordinary: p95 during merges over p95 outside",
        "ratio",
        "1.0",
        float(calm["p95_ratio_merge"].max()),
        f"largest of {len(calm)} calibrations without added contention",
    )
    steady = _runs(figures, "steady")
    share = steady["requests_in_merge"] / steady["requests"]
    of = share.groupby(steady["policy"]).mean()
    yield Finding(
        "steady: requests served during merges, fixed_h_512 over random",
        "ratio",
        None,
        float(of["fixed_h_512"] / of[RANDOM]),
        "both list 8 merges: their budgets are not the same",
    )
    fit, slope, intercept = merge_share_fit(figures, "steady")
    line = "rate on the share of requests served during merges, 30 runs"
    yield Finding("steady: R² of the violation rate", "R²", None, fit, line)
    yield Finding("steady: slope of the same line", "ratio", None, slope, line)
    yield Finding(
        "steady: violation rate without merges", "%", None, 100 * intercept, "intercept of the same"
    )


def _out_of_reach(figures: pd.DataFrame) -> Iterator[Finding]:
    yield Finding(
        "steady: R² of the rate on merge duty in seconds",
        "R²",
        "0.966",
        None,
        "the file holds requests served during merges, not merge seconds",
    )
    later = "of a later stage, of which the file holds no run"
    yield Finding("bursty: online forecaster, random", "%", "6.54", None, later)
    yield Finding("bursty: online forecaster", "%", "5.09", None, later)
    yield Finding(
        "bursty: online forecaster against random",
        "p",
        "0.021",
        None,
        f"{later}; five sign-flipped pairs cannot go below 0.031",
    )
    offered = float(_runs(figures, "bursty")["requests"].mean())
    yield Finding(
        "bursty: rate against the forecast's error",
        "",
        "graceful",
        None,
        later,
    )
    yield Finding(
        "bursty: requests saved per sidecar and ten minutes",
        "requests",
        "60",
        None,
        f"said as about 60; 6.54 - 5.09 points of {offered:.0f} requests would be "
        f"{offered * 0.0145:.0f}",
    )
