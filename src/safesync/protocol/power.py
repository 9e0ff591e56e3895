"""Which verdict a design can be expected to give, and the smallest design that settles a case.

Rates here: ``gain`` is the true gain over the mean of the draws (positive: better), standard
deviations and margins are in the same unit. Differences over blocks are taken as normal.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import stats
from scipy.special import ndtr

from safesync.protocol.statistics import blocks_to_resolve, pooled_sd

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
class Awareness:
    """The second gain that EARNED needs: over the policy's own gaps in other orders.

    ``gain``: its mean over blocks, a rate; ``sd``: of one block's. ``resolving_blocks``: fewest
    with which its p can fall low enough; None: no number of them does.
    """

    gain: float
    sd: float
    resolving_blocks: int | None

    def narrow(self, expected: Chances, blocks: int, level: float) -> Chances:
        """Return ``expected`` with EARNED only as often as both gains come out at the least.

        That holds however the two hang together (Frechet's lower bound).
        """
        able = self.resolving_blocks is not None and blocks >= self.resolving_blocks
        also = chances(self.gain, self.sd, blocks, level=level, min_gain=0.0, resolved=able).earned
        return replace(expected, earned=max(0.0, expected.earned + also - 1.0))


@dataclass(frozen=True)
class Design:
    """A study: judged blocks in all, draws per block (None: exact null) and other orders.

    ``orders``: of the policy's own gaps, measured per block; 0 where they take no measurement.
    """

    blocks: int
    draws: int | None
    orders: int = 0

    @property
    def replays(self) -> int:
        """Return what it measures: per block the capture, the policy, its draws and its orders.

        Where the null is exact, the capture alone.
        """
        return self.blocks * (1 if self.draws is None else self.draws + self.orders + 2)


def noise_of(
    differences: Sequence[float], draws: Sequence[Sequence[float]], run_sd: float | None = None
) -> Noise | None:
    """Return the spread seen in a case; None below two blocks.

    ``differences`` (B,): policy minus mean of its draws; ``draws``: B sequences of K_b rates, or
    none at all where the null is exact. The draws' variance is pooled within blocks (0 where no
    block has two: all is then laid to the policy); the policy's is the variance of the differences
    less the share that the draws bring. ``run_sd``: SD of one replay's rate from run to run, known
    from repeats of one schedule; neither can be less.
    """
    if len(differences) < 2:
        return None
    least = (run_sd or 0.0) ** 2
    draw_variance = max((pooled_sd(draws) or 0.0) ** 2, least)
    share = draw_variance * float(np.mean([1 / len(block) for block in draws])) if draws else 0.0
    own_variance = float(np.var(differences, ddof=1)) - share
    return Noise(math.sqrt(max(own_variance, least)), math.sqrt(draw_variance))


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
        return ndtr((mean - limit) / error)

    def significant(mean: float) -> float:
        patterns = math.floor(level * 2**blocks * (1 + 1e-9))
        if not patterns:
            return 0.0
        critical = np.maximum(min_gain, _t(1 - patterns / 2**blocks, blocks) * seen)
        chance = float(weights @ above(critical, mean))
        # the one pattern is that of all blocks on the same side
        return min(chance, float(ndtr(mean / sd)) ** blocks) if patterns == 1 else chance

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
    have: Design,
    *,
    alpha: float,
    family: int,
    min_gain: float,
    min_blocks: int,
    interval_level: float = 0.90,
    target: float = TARGET,
    exact_draws: float = math.inf,
    awareness: Awareness | None = None,
) -> tuple[Design, Chances] | None:
    """Return the design that settles a case with probability ``target``, and its chances.

    ``gain`` and ``noise`` are taken as true. ``have``: what is there and has not settled it; a
    design is larger, and the one of fewest further replays is returned; each block then has as many
    other orders. ``exact_draws``: what a
    block of an exact null can do to p, as that many draws would. ``awareness``: what EARNED needs
    besides, where the tier carries it. None when no design of up to ``MOST_BLOCKS`` blocks settles
    it: a gain near the margin is neither shown to be above it nor below, and one that is the
    spacing's is never earned.
    """
    level = alpha / family
    found = None
    for draws in _draws_from(have.draws):
        needed = blocks_to_resolve(exact_draws if draws is None else draws, level, min_blocks)
        sd = noise.of_difference(draws)
        first = have.blocks + 1 if draws == have.draws else have.blocks
        for blocks in range(max(first, min_blocks, 2), MOST_BLOCKS + 1):
            design = replace(have, blocks=blocks, draws=draws)
            if found is not None and design.replays >= found[0].replays:
                break
            expected = chances(
                gain,
                sd,
                blocks,
                level=level,
                min_gain=min_gain,
                interval_level=interval_level,
                resolved=blocks >= needed,
            )
            if awareness is not None:
                expected = awareness.narrow(expected, blocks, level)
            if expected.settled >= target:
                found = design, expected
                break
    return found


def _draws_from(draws: int | None) -> Iterator[int | None]:
    yield draws
    if draws is not None:
        yield from (more for more in _DRAWS if more > draws)


@lru_cache(maxsize=1024)
def _seen_errors(blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of the standard error seen, as a share of the true one."""
    quantiles = stats.chi2.ppf((_NODES + 1) / 2, blocks - 1)
    return np.sqrt(quantiles / (blocks - 1)), _WEIGHTS / 2


@lru_cache(maxsize=4096)
def _t(quantile: float, blocks: int) -> float:
    return float(stats.t.ppf(quantile, blocks - 1))
