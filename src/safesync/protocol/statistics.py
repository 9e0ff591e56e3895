"""Tests over blocks. Lower is better: a statistic is a rate, a cost or a difference of two.

A p-value counts the arrangements at least as extreme as the observed one, ties included; its
smallest attainable value goes with it. P(p <= a) <= a, whatever the ties, holds under the null of
each test. The null of the randomization tests is that the policy's placement is exchangeable with
its draws. A schedule fixed in advance (a fixed period) is not drawn so: on few traces its p within
blocks can be small by luck of the traces (benchmarks/steady.py: at most 0.05 in 12 % of studies
for fixed_h 512). So that p is conditional on these traces, and the sign-flip test over blocks is
combined with it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests

from safesync.placement import Null

EXACT_ARRANGEMENTS = 1_000_000
EXACT_SIGN_FLIP_BLOCKS = 20
BOOTSTRAP_BLOCKS = 5  # fewer hold too few distinct resamples to describe anything
_CHUNK = 8192

Alternative = Literal["less", "greater", "two-sided"]


@dataclass(frozen=True)
class PValue:
    """A p-value, the smallest that this design can give, and how it was computed.

    ``arrangements`` is None where a distribution was convolved and nothing was enumerated.
    """

    p: float
    smallest: float
    statistic: float
    arrangements: int | None
    exact: bool


@dataclass(frozen=True)
class Interval:
    """A t interval of a mean over blocks; ``low`` and ``high`` are None below two blocks."""

    mean: float
    low: float | None
    high: float | None
    level: float
    note: str


def randomization_test(
    policy: Sequence[float],
    draws: Sequence[Sequence[float]],
    *,
    alternative: Alternative = "less",
    monte_carlo: int = 99_999,
    seed: int = 0,
) -> PValue:
    """Blocked randomization test: could one of the draws have stood in the policy's place?

    ``policy`` (B,): the policy's rate per block; ``draws``: B sequences of its K_b draws' rates.
    Statistic: sum over blocks of (policy - mean of its draws). Under the null the policy is one
    more draw, so within each block each of the K_b + 1 values is equally likely to be the
    policy's. All prod(K_b + 1) arrangements are enumerated when they are at most
    ``EXACT_ARRANGEMENTS``; else ``monte_carlo`` seeded ones give (r + 1) / (n + 1) (Phipson and
    Smyth 2010). The p-value is conditional on these traces. Raises ValueError without a block or
    with a block that has no draw.
    """
    if not len(policy) or len(policy) != len(draws) or not all(len(d) for d in draws):
        raise ValueError("a randomization test needs at least one block, and draws in every block")
    contrasts = [
        _contrasts(np.array([own, *others], dtype=float))
        for own, others in zip(policy, draws, strict=True)
    ]
    observed = sum(block[0] for block in contrasts)
    arrangements = math.prod(len(block) for block in contrasts)
    if arrangements <= EXACT_ARRANGEMENTS:
        null = np.zeros(1)
        for block in contrasts:
            null = np.add.outer(null, block).ravel()
        p = _tail(null, observed, alternative).mean()
        return PValue(float(p), 1 / arrangements, float(observed), arrangements, exact=True)
    rng = np.random.default_rng(seed)
    null = np.zeros(monte_carlo)
    for block in contrasts:
        null += rng.choice(block, size=monte_carlo)
    p = (int(_tail(null, observed, alternative).sum()) + 1) / (monte_carlo + 1)
    smallest = max(1 / arrangements, 1 / (monte_carlo + 1))
    return PValue(p, smallest, float(observed), arrangements, exact=False)


def convolved_null_test(
    costs: Sequence[int],
    nulls: Sequence[Null],
    *,
    alternative: Literal["less", "greater"] = "less",
    exact: bool = True,
) -> PValue:
    """Place of a total cost in the convolution of its blocks' nulls, one-sided.

    ``costs`` (B,): the policy's cost per block, integers; ``nulls``: B distributions of the cost
    under placement by chance, independent over blocks. The statistic is the sum of the costs, less
    its mean. ``exact``: whether the nulls are (False: sampled ones). The p-value is conditional on
    these traces. Raises ValueError without a block.
    """
    if not len(costs) or len(costs) != len(nulls):
        raise ValueError("a convolved null needs at least one block, and one null for each")
    null = Null.convolve(nulls)
    total = int(sum(costs))
    if alternative == "less":
        p, smallest = null.p_at_most(total), float(null.probabilities[0])
    else:
        p, smallest = null.p_at_least(total), float(null.probabilities[-1])
    return PValue(p, smallest, total - null.mean, None, exact)


def sign_flip_test(
    differences: Sequence[float],
    *,
    alternative: Alternative = "less",
    monte_carlo: int = 99_999,
    seed: int = 0,
) -> PValue:
    """Sign-flip test on one difference per block: is their sum lower than signs by chance give?

    ``differences`` (B,). Under the null each is symmetric about 0, so all 2^B sign patterns are
    equally likely (Fisher 1935). Exact up to ``EXACT_SIGN_FLIP_BLOCKS`` blocks, above that
    seeded Monte Carlo with (r + 1) / (n + 1). Ties count as extreme, so a zero difference never
    helps. Raises ValueError without a block.
    """
    values = np.asarray(differences, dtype=float)
    if not values.size:
        raise ValueError("a sign-flip test needs at least one block")
    observed = float(values.sum())
    patterns = 2**values.size
    if values.size <= EXACT_SIGN_FLIP_BLOCKS:
        null = np.zeros(1)
        for value in values:
            null = np.add.outer(null, (value, -value)).ravel()
        p = float(_tail(null, observed, alternative).mean())
        return PValue(p, 1 / patterns, observed, patterns, exact=True)
    rng = np.random.default_rng(seed)
    extreme = 0
    for start in range(0, monte_carlo, _CHUNK):
        size = min(_CHUNK, monte_carlo - start)
        signs = rng.choice((-1.0, 1.0), size=(size, values.size))
        extreme += int(_tail(signs @ values, observed, alternative).sum())
    smallest = max(1 / patterns, 1 / (monte_carlo + 1))
    return PValue((extreme + 1) / (monte_carlo + 1), smallest, observed, patterns, exact=False)


def holm(p_values: Sequence[float], family: int | None = None) -> list[float]:
    """Return Holm-adjusted p-values, in order (Holm 1979, as statsmodels computes it).

    ``family``: the number of hypotheses declared beforehand when more than those tested; the
    untested ones enter with p = 1, so that a claim that fell away does not cheapen the others.
    """
    tested = list(p_values)
    if not tested:
        return []
    padding = [1.0] * max(0, (family or 0) - len(tested))
    return [float(p) for p in multipletests(tested + padding, method="holm")[1][: len(tested)]]


def mean_interval(
    differences: Sequence[float], level: float = 0.90, least_sd: float = 0.0
) -> Interval:
    """Return the t interval of the mean over blocks, shape (B,) -> mean, low, high.

    Blocks are independent (own traces), their differences taken as near normal: with few blocks
    the interval describes, and only TIED rests on it. ``least_sd``: what one difference is known to
    scatter by; a few of them can agree better than that by luck, and the interval does not.
    """
    values = np.asarray(differences, dtype=float)
    mean = float(values.mean())
    if values.size < 2:
        return Interval(mean, None, None, level, "one block: no spread over blocks, no interval")
    seen = float(values.std(ddof=1))
    note = f"t over {values.size} blocks"
    if seen < least_sd:
        note += ", their spread raised to the noise from run to run"
    error = max(seen, least_sd) / math.sqrt(values.size)
    half = float(stats.t.ppf((1 + level) / 2, values.size - 1)) * error
    return Interval(mean, mean - half, mean + half, level, note)


def bootstrap_interval(
    differences: Sequence[float], level: float = 0.90, *, resamples: int = 9_999, seed: int = 0
) -> tuple[float, float] | None:
    """Return the BCa bootstrap interval of the mean over blocks (Efron 1987, as scipy computes it).

    ``differences`` (B,): one per block; blocks are resampled. It describes a skewed spread better
    than the t interval and covers less with few blocks, so no verdict rests on it. None below
    ``BOOTSTRAP_BLOCKS`` blocks.
    """
    values = np.asarray(differences, dtype=float)
    if values.size < BOOTSTRAP_BLOCKS:
        return None
    if not np.ptp(values):
        return float(values[0]), float(values[0])
    found = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=resamples,
        confidence_level=level,
        method="BCa",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)


def pooled_sd(groups: Iterable[Sequence[float]]) -> float | None:
    """Return the standard deviation within groups, pooled by degrees of freedom.

    None when no group holds two values.
    """
    squares, freedom = 0.0, 0
    for group in groups:
        if len(group) > 1:
            squares += float(np.var(group)) * len(group)
            freedom += len(group) - 1
    return math.sqrt(squares / freedom) if freedom else None


def smallest_p(draws: float, blocks: int) -> float:
    """Return the smallest p_claim that ``blocks`` of ``draws`` can give, (K + 1)^-B or 2^-B."""
    return max((draws + 1.0) ** -blocks, 2.0**-blocks)


def blocks_to_resolve(draws: float, level: float, at_least: int = 1) -> int:
    """Return the fewest blocks, ``at_least`` or more, whose smallest p is at most ``level``.

    ``draws`` > 0 and ``level`` > 0.
    """
    blocks = max(at_least, 1)
    while smallest_p(draws, blocks) > level:
        blocks += 1
    return blocks


def _contrasts(values: np.ndarray) -> np.ndarray:
    """Return, for each of K + 1 values, that value minus the mean of the K others."""
    others = values.size - 1
    return values - (values.sum() - values) / others


def _tail(null: np.ndarray, observed: float, alternative: Alternative) -> np.ndarray:
    """Return which arrangements are at least as extreme; rounding never breaks a tie."""
    slack = 1e-9 * max(1.0, abs(observed), float(np.abs(null).max()))
    if alternative == "less":
        return null <= observed + slack
    if alternative == "greater":
        return null >= observed - slack
    return np.abs(null) >= abs(observed) - slack
