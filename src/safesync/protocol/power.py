"""Which verdict a design can be expected to give, and the smallest design that settles a case.

Rates here: ``gain`` is the true gain over the mean of the draws (positive: better), standard
deviations and margins are in the same unit. Differences over blocks are taken as normal.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import stats

from safesync.protocol.statistics import blocks_to_resolve

TARGET = 0.8
MOST_BLOCKS = 200
_DRAWS = (1, 2, 3, 4, 5, 7, 9, 14, 19, 29, 49, 99)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


@dataclass(frozen=True)
class Noise:
    """Spread behind one difference: of the policy over blocks, and of one draw within its block.

    Both hold the run-to-run noise, for every replay is one run.
    """

    policy_sd: float
    draw_sd: float

    def of_difference(self, draws: int | None) -> float:
        """Return the SD of policy minus the mean of ``draws`` draws; None: an exact mean."""
        return math.sqrt(self.policy_sd**2 + (self.draw_sd**2 / draws if draws else 0.0))


@dataclass(frozen=True)
class Chances:
    """Probabilities of the verdicts that settle a case."""

    earned: float
    harmful: float
    tied: float

    @property
    def settled(self) -> float:
        """Return the probability of any of them; they exclude each other."""
        return self.earned + self.harmful + self.tied


@dataclass(frozen=True)
class Design:
    """A study: judged blocks in all, draws per block (None: exact null), and what it adds.

    ``replays``: measurements beyond those that are there; ``wall_s``: their time, one after
    another, seconds.
    """

    blocks: int
    draws: int | None
    chances: Chances
    replays: int
    wall_s: float


def noise_of(differences: Sequence[float], draws: Sequence[Sequence[float]]) -> Noise | None:
    """Return the spread seen in a case.

    ``differences`` (B,): policy minus mean of its draws; ``draws``: B sequences of K_b rates, or
    none at all where the null is exact. The draws' variance is pooled within blocks; the policy's
    is the variance of the differences less the share that the draws bring. With one block the
    policy is taken to spread as its draws do. None when neither can be estimated.
    """
    freedom = sum(len(block) - 1 for block in draws)
    squares = sum(float(np.var(block)) * len(block) for block in draws)
    draw_variance = squares / freedom if freedom > 0 else None
    if len(differences) < 2:
        return None if draw_variance is None else Noise(*[math.sqrt(draw_variance)] * 2)
    whole = float(np.var(differences, ddof=1))
    if draw_variance is None:
        return Noise(math.sqrt(whole), 0.0)
    share = draw_variance * float(np.mean([1 / len(block) for block in draws]))
    return Noise(math.sqrt(max(whole - share, 0.0)), math.sqrt(draw_variance))


def chances(
    gain: float,
    sd: float,
    blocks: int,
    *,
    level: float,
    min_gain: float,
    interval_level: float = 0.90,
    resolved: bool = True,
) -> Chances:
    """Return how likely each settling verdict is with ``blocks`` differences of SD ``sd``.

    ``level``: alpha over the number of claims (Holm's first step). The sign-flip test is stood in
    for by the t test at the largest level that 2^blocks sign patterns can attain, and where that is
    one pattern alone, by no more than the chance of it. The randomization test within blocks is
    taken to be the laxer one; with few draws it is not quite (benchmarks/verdicts.py prints what is
    foreseen beside what comes out). ``resolved``: whether the design can be EARNED
    at all (the resolution gate).

    The chances integrate, over the distribution of the SD that will be seen, the chance of the
    mean: at least ``min_gain`` and significant (EARNED), the mirror of that (HARMFUL), or with its
    whole interval inside the margin (TIED: two one-sided tests, Schuirmann 1987).
    """
    if blocks < 2:
        return Chances(0.0, 0.0, 0.0)
    sd = max(sd, 1e-12)
    error = sd / math.sqrt(blocks)
    shares, weights = _seen_errors(blocks)
    seen = shares * error

    def above(limit: np.ndarray, mean: float) -> np.ndarray:
        return stats.norm.sf((limit - mean) / error)

    def significant(mean: float) -> float:
        patterns = math.floor(level * 2**blocks * (1 + 1e-9))
        if not patterns:
            return 0.0
        critical = np.maximum(min_gain, _t(1 - patterns / 2**blocks, blocks) * seen)
        chance = float(weights @ above(critical, mean))
        # the one pattern is that of all blocks on the same side
        return min(chance, stats.norm.cdf(mean / sd) ** blocks) if patterns == 1 else chance

    room = min_gain - _t((1 + interval_level) / 2, blocks) * seen
    inside = np.where(room > 0, above(-room, gain) - above(room, gain), 0.0)
    return Chances(
        earned=significant(gain) if resolved else 0.0,
        harmful=significant(-gain),
        tied=float(weights @ inside),
    )


def smallest_design(
    gain: float,
    noise: Noise,
    *,
    blocks: int,
    draws: int | None,
    alpha: float,
    family: int,
    min_gain: float,
    min_blocks: int,
    replay_s: float,
    interval_level: float = 0.90,
    target: float = TARGET,
) -> Design | None:
    """Return the design of least wall time that settles a case with probability ``target``.

    ``gain`` and ``noise`` are taken as true. ``blocks`` and ``draws``: what is there; a design
    never has fewer. A new block costs the capture, the policy and its draws, a further draw one
    replay in every block; on the overlap tier (``draws`` None) a block costs its capture alone.
    None when no design of up to ``MOST_BLOCKS`` blocks does: a gain near the margin is neither
    shown to be above it nor below.
    """
    level = alpha / family
    found = None
    for more in _draws_from(draws):
        finest = math.inf if more is None else more
        needed = blocks_to_resolve(finest, level, min_blocks)
        sd = noise.of_difference(more)
        for count in range(max(blocks, min_blocks, 2), MOST_BLOCKS + 1):
            replays = _replays(count, more) - _replays(blocks, draws)
            if found is not None and replays >= found.replays:
                break
            expected = chances(
                gain,
                sd,
                count,
                level=level,
                min_gain=min_gain,
                interval_level=interval_level,
                resolved=count >= needed,
            )
            if expected.settled >= target:
                found = Design(count, more, expected, replays, replays * replay_s)
                break
    return found


def _draws_from(draws: int | None) -> Iterator[int | None]:
    if draws is None:
        yield None
        return
    yield draws
    yield from (more for more in _DRAWS if more > draws)


def _replays(blocks: int, draws: int | None) -> int:
    return blocks * (1 if draws is None else draws + 2)


@lru_cache(maxsize=1024)
def _seen_errors(blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of the standard error seen, as a share of the true one."""
    quantiles = stats.chi2.ppf((_NODES + 1) / 2, blocks - 1)
    return np.sqrt(quantiles / (blocks - 1)), _WEIGHTS / 2


@lru_cache(maxsize=4096)
def _t(quantile: float, blocks: int) -> float:
    return float(stats.t.ppf(quantile, blocks - 1))
