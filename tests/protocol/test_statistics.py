import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from safesync.protocol.statistics import (
    blocks_to_resolve,
    bootstrap_interval,
    holm,
    mean_interval,
    pooled_sd,
    randomization_test,
    sign_flip_test,
    smallest_p,
)

# published study, sync stage, steady regime, seeds 23, 29, 31, 37, 41
WA_STEADY = [
    0.06405228758169934,
    0.06770833333333333,
    0.06201550387596899,
    0.06048387096774194,
    0.06851119894598155,
]
RANDOM_STEADY = [
    0.0549738219895288,
    0.06728232189973615,
    0.06544502617801047,
    0.07290233837689133,
    0.05851755526657997,
]
# bursty regime: online calibrated, random (mean of its draws, reconstructed), WA (reconstructed)
ONLINE = [
    0.08386508659981769,
    0.045658012533572066,
    0.052054794520547946,
    0.06057866184448463,
    0.05385996409335727,
]
RANDOM_BURSTY = [0.055735, 0.064418, 0.066255, 0.058219, 0.06822]
WA_BURSTY = [0.094515, 0.043398, 0.066665, 0.064229, 0.07692]

grid = st.integers(-5, 5).map(lambda k: k / 100)


def differences(left, right):
    return [a - b for a, b in zip(left, right, strict=True)]


def test_published_steady_pairs():
    d = differences(WA_STEADY, RANDOM_STEADY)
    assert 100 * np.mean(d) == pytest.approx(0.073, abs=5e-4)
    assert sign_flip_test(d).p == 18 / 32
    assert sign_flip_test(d, alternative="two-sided").p == 0.9375


def test_published_bursty_pairs():
    against_random = differences(ONLINE, RANDOM_BURSTY)
    assert 100 * np.mean(against_random) == pytest.approx(-0.337, abs=1e-3)
    assert sign_flip_test(against_random).p == pytest.approx(0.344, abs=5e-4)
    against_wa = differences(ONLINE, WA_BURSTY)
    assert 100 * np.mean(against_wa) == pytest.approx(-0.994, abs=1e-3)
    assert sign_flip_test(against_wa).p == 0.0625


@given(st.lists(grid, min_size=1, max_size=7))
def test_sign_flip_equals_brute_force(d):
    sums = [
        round(sum(s * v for s, v in zip(signs, d, strict=True)), 9)
        for signs in itertools.product((1, -1), repeat=len(d))
    ]
    observed = round(sum(d), 9)
    assert sign_flip_test(d).p == sum(s <= observed for s in sums) / len(sums)
    assert sign_flip_test(d, alternative="greater").p == sum(s >= observed for s in sums) / len(
        sums
    )


def test_zero_differences_never_help():
    assert sign_flip_test([0.0] * 6).p == 1
    assert sign_flip_test([-0.01, 0, 0, 0, 0]).p == 0.5


def test_sign_flip_smallest_is_attained():
    result = sign_flip_test([-0.01, -0.02, -0.03, -0.04, -0.05])
    assert result.p == result.smallest == 2**-5


def test_sign_flip_beyond_exact_is_seeded_monte_carlo():
    d = np.random.default_rng(0).normal(-0.2, 1, 25)
    one, two = (sign_flip_test(d, monte_carlo=9_999, seed=4) for _ in range(2))
    assert one == two
    assert not one.exact
    assert one.smallest == 1e-4
    exact_by_normal = 0.5 * (1 + math.erf(d.sum() / math.sqrt(2 * (d**2).sum())))
    assert one.p == pytest.approx(exact_by_normal, abs=0.02)


@settings(max_examples=40)
@given(st.lists(st.tuples(grid, st.lists(grid, min_size=1, max_size=3)), min_size=1, max_size=4))
def test_randomization_equals_brute_force(blocks):
    own = [policy for policy, _ in blocks]
    draws = [values for _, values in blocks]

    def statistic(places):
        total = 0.0
        for place, (policy, values) in zip(places, blocks, strict=True):
            everyone = [policy, *values]
            rest = everyone[:place] + everyone[place + 1 :]
            total += everyone[place] - sum(rest) / len(rest)
        return round(total, 9)

    observed = statistic([0] * len(blocks))
    null = [statistic(p) for p in itertools.product(*(range(len(v) + 1) for v in draws))]
    result = randomization_test(own, draws)
    assert result.p == pytest.approx(sum(v <= observed for v in null) / len(null))
    assert result.smallest == 1 / len(null)
    mirrored = randomization_test(own, draws, alternative="greater")
    assert mirrored.p == pytest.approx(sum(v >= observed for v in null) / len(null))


def test_randomization_smallest_is_attained():
    result = randomization_test([0.0] * 3, [[0.1, 0.2, 0.3]] * 3)
    assert result.p == result.smallest == 4**-3


def test_randomization_beyond_exact_is_seeded_monte_carlo():
    rng = np.random.default_rng(1)
    own, draws = rng.normal(size=6), rng.normal(size=(6, 19))
    one, two = (randomization_test(own, draws, monte_carlo=9_999, seed=3) for _ in range(2))
    assert one == two
    assert not one.exact
    assert one.arrangements == 20**6
    assert one.smallest == 1e-4
    far = randomization_test(own - 100, draws, monte_carlo=9_999)
    assert far.p == 1e-4


def test_null_policy_is_rarely_significant():
    rng = np.random.default_rng(2)
    level = 0.1
    p = [
        randomization_test(values[:, 0], values[:, 1:]).p
        for values in rng.normal(size=(2000, 3, 4))
    ]
    assert np.mean(np.array(p) <= level) <= level + 3 * math.sqrt(level * (1 - level) / 2000)


@pytest.mark.parametrize(("own", "draws"), [([], []), ([0.1], [[]]), ([0.1, 0.2], [[0.1]])])
def test_randomization_needs_draws_in_every_block(own, draws):
    with pytest.raises(ValueError, match="draws in every block"):
        randomization_test(own, draws)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.02], family=3) == pytest.approx([0.06])
    assert holm([]) == []


def test_interval_by_hand():
    interval = mean_interval([0.01, 0.02, 0.03], 0.90)
    half = 2.919985580 * 0.01 / math.sqrt(3)
    assert interval.low == pytest.approx(0.02 - half)
    assert interval.high == pytest.approx(0.02 + half)
    assert mean_interval([0.01]).low is None
    assert interval.note == "t over 3 blocks"


def test_blocks_to_resolve():
    assert blocks_to_resolve(3, 0.05) == 5
    assert blocks_to_resolve(3, 0.05 / 4) == 7
    assert blocks_to_resolve(19, 0.05, at_least=6) == 6
    assert blocks_to_resolve(1, 2**-5) == 5


def test_an_interval_is_no_narrower_than_known_noise():
    half = 2.919985580 * 0.02 / math.sqrt(3)
    interval = mean_interval([0.01, 0.02, 0.03], 0.90, least_sd=0.02)
    assert (interval.low, interval.high) == pytest.approx((0.02 - half, 0.02 + half))
    assert interval.note == "t over 3 blocks, their spread raised to the noise from run to run"
    assert mean_interval([0.01, 0.02, 0.03], 0.90, least_sd=0.0099) == mean_interval(
        [0.01, 0.02, 0.03], 0.90
    )


def test_spread_is_pooled_by_degrees_of_freedom():
    # squares 1 + 1 with 1 degree, 0.25 + 0.25 + 1 with 2 (mean 0.5); one alone tells nothing
    groups = [[3.0, 5.0], [0.0, 0.0, 1.5], [9.0]]
    assert pooled_sd(groups) == pytest.approx(math.sqrt((2 + 1.5) / 3))
    assert pooled_sd([[1.0], []]) is None
    assert pooled_sd([]) is None


def test_smallest_p_by_hand():
    assert smallest_p(3, 2) == 2**-2
    assert smallest_p(0.5, 2) == 1.5**-2
    assert smallest_p(math.inf, 5) == 2**-5


def test_the_bootstrap_is_bca_over_all_resamples_there_are():
    values = np.array([0.0113, 0.0021, 0.0317, -0.0128, 0.1214, 0.0239])  # skewed
    every = np.array(list(itertools.product(values, repeat=6))).mean(axis=1)
    mean = values.mean()
    bias = ndtri(((every < mean).mean() + (every <= mean).mean()) / 2)
    left_out = np.array([np.delete(values, k).mean() for k in range(6)])
    away = left_out.mean() - left_out
    skew = (away**3).sum() / (6 * (away**2).sum() ** 1.5)
    assert skew > 0.05

    def end(share):
        at = bias + ndtri(share)
        return np.quantile(every, ndtr(bias + at / (1 - skew * at)))

    found = bootstrap_interval(values, 0.90, resamples=200_000)
    assert found == pytest.approx((end(0.05), end(0.95)), abs=0.001)
    # the plain percentiles lie elsewhere, and would not pass
    assert np.quantile(every, 0.95) < found[1] - 0.005


def test_the_bootstrap_keeps_its_seed_and_needs_five_blocks_that_differ():
    values = [0.01, 0.0, 0.03, -0.01, 0.12]
    assert bootstrap_interval(values, seed=3) == bootstrap_interval(values, seed=3)
    assert bootstrap_interval(values, seed=3) != bootstrap_interval(values, seed=4)
    assert bootstrap_interval(values[:4]) is None
    assert bootstrap_interval([0.02] * 5) == (0.02, 0.02)
