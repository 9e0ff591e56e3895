"""Chances of the verdicts against closed forms, and against the rule on simulated studies."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from safesync.protocol.power import (
    Chances,
    Design,
    Noise,
    chances,
    noise_of,
    smallest_design,
)
from safesync.protocol.statistics import mean_interval, sign_flip_test

RULES = {"alpha": 0.05, "family": 1, "min_gain": 0.01, "min_blocks": 5}


@pytest.mark.parametrize(("gain", "blocks"), [(0.01, 30), (0.004, 60), (0.0, 40)])
def test_without_a_minimum_gain_it_is_the_power_of_the_t_test(gain, blocks):
    found = chances(gain, 0.02, blocks, level=0.05, min_gain=0.0)
    expected = TTestPower().power(gain / 0.02, nobs=blocks, alpha=0.05, alternative="larger")
    assert found.earned == pytest.approx(expected, abs=1e-4)


def test_with_certain_significance_only_the_minimum_gain_decides():
    # at 100 blocks and a gain of 8 errors above zero significance is certain: mean >= min_gain
    error = 0.01 / math.sqrt(100)
    found = chances(0.0105, 0.01, 100, level=0.05, min_gain=0.01)
    assert found.earned == pytest.approx(stats.norm.sf(-0.0005 / error), abs=1e-6)


def test_five_blocks_attain_one_in_32_whatever_the_level():
    at = [chances(0.02, 0.01, 5, level=level, min_gain=0.0) for level in (0.0313, 0.05, 0.0624)]
    assert len(set(at)) == 1
    assert chances(0.02, 0.01, 5, level=0.0624, min_gain=0.0).earned < (
        chances(0.02, 0.01, 5, level=0.0626, min_gain=0.0).earned
    )
    assert chances(0.02, 0.01, 5, level=0.03, min_gain=0.0).earned == 0


def test_with_five_blocks_all_must_lie_on_one_side():
    found = chances(0.02, 0.012, 5, level=0.05, min_gain=0.0)
    assert found.earned == pytest.approx(stats.norm.cdf(0.02 / 0.012) ** 5, abs=1e-12)


def test_harm_is_the_mirror_of_gain():
    one = chances(0.015, 0.01, 8, level=0.05, min_gain=0.01)
    other = chances(-0.015, 0.01, 8, level=0.05, min_gain=0.01)
    assert (one.earned, one.harmful) == pytest.approx((other.harmful, other.earned), abs=1e-12)
    assert one.tied == pytest.approx(other.tied, abs=1e-12)


def test_without_noise_the_truth_decides():
    for gain, expected in ((0.02, (1, 0, 0)), (-0.02, (0, 1, 0)), (0.005, (0, 0, 1))):
        found = chances(gain, 0.0, 6, level=0.05, min_gain=0.01)
        assert (found.earned, found.harmful, found.tied) == pytest.approx(expected, abs=1e-9)


def test_an_unresolved_design_is_never_earned():
    found = chances(0.05, 0.01, 6, level=0.05, min_gain=0.01, resolved=False)
    assert found.earned == 0
    assert chances(0.05, 0.01, 1, level=0.05, min_gain=0.01) == Chances(0, 0, 0)


@pytest.mark.parametrize(
    ("gain", "sd", "blocks"),
    [(0.025, 0.012, 5), (0.02, 0.012, 6), (0.0, 0.008, 8), (0.012, 0.006, 10)],
)
def test_the_rule_on_simulated_differences_comes_out_as_expected(gain, sd, blocks):
    rng = np.random.default_rng(7)
    studies = 1500
    earned = tied = 0
    for differences in rng.normal(-gain, sd, (studies, blocks)):
        mean = -differences.mean()
        if mean >= 0.01 and sign_flip_test(differences).p <= 0.05:
            earned += 1
            continue
        interval = mean_interval(differences, 0.90)
        tied += interval.low > -0.01 and interval.high < 0.01
    expected = chances(gain, sd, blocks, level=0.05, min_gain=0.01)
    # sampling error of 1500 studies is 1.3 points; the rest is the t test in the sign flip's place
    assert earned / studies == pytest.approx(expected.earned, abs=0.05)
    assert tied / studies == pytest.approx(expected.tied, abs=0.04)


def test_noise_is_split_into_draws_and_policy():
    draws = [[0.0, 0.02], [0.01, 0.01, 0.04]]
    pooled = (2 * 0.01**2 + 2 * 0.01**2 + 0.02**2) / 3
    found = noise_of([0.03, -0.01], draws)
    assert found.draw_sd == pytest.approx(math.sqrt(pooled))
    share = pooled * (1 / 2 + 1 / 3) / 2
    assert found.policy_sd == pytest.approx(math.sqrt(2 * 0.02**2 - share))
    assert found.of_difference(4) == pytest.approx(math.sqrt(2 * 0.02**2 - share + pooled / 4))
    assert found.of_difference(None) == found.policy_sd


def test_noise_where_little_is_known():
    assert noise_of([0.01], [[0.0, 0.02]]) is None
    assert noise_of([], []) is None
    assert noise_of([0.01, 0.03], []) == Noise(pytest.approx(math.sqrt(2e-4)), 0.0)
    assert noise_of([0.01, 0.03], [[0.2], [0.3]]) == Noise(pytest.approx(math.sqrt(2e-4)), 0.0)
    # differences that agree better than the draws' noise allows leave nothing to the policy
    assert noise_of([0.01, 0.01], [[0.0, 0.1], [0.0, 0.1]]).policy_sd == 0


def test_no_spread_is_less_than_the_noise_from_run_to_run():
    quiet = [[0.0, 0.002], [0.001, 0.001]]
    assert noise_of([0.01, 0.01], quiet, 0.02) == Noise(pytest.approx(0.02), pytest.approx(0.02))
    # one draw each: its run is in the differences, so only what is left is the policy's own
    found = noise_of([0.0, 0.1], [[0.2], [0.3]], 0.02)
    assert found.draw_sd == pytest.approx(0.02)
    assert found.policy_sd == pytest.approx(math.sqrt(0.005 - 0.02**2))
    loud = [[0.0, 0.2], [0.1, 0.3]]
    assert noise_of([0.0, 0.9], loud, 0.02) == noise_of([0.0, 0.9], loud)


def test_a_clear_gain_needs_the_blocks_of_the_resolution_and_no_more():
    have, noise = Design(1, 3), Noise(0.005, 0.005)
    found, expected = smallest_design(0.08, noise, have, **RULES)
    assert found == Design(5, 3)
    assert (have.replays, found.replays) == (5, 25)
    assert expected.earned > 0.99
    claims, _ = smallest_design(0.08, noise, have, **RULES | {"family": 4})
    assert claims.blocks == 7  # 2^-7 is below 0.05 / 4, 2^-6 is not


def test_no_gain_is_settled_as_a_tie():
    _, expected = smallest_design(0.0, Noise(0.005, 0.005), Design(5, 3), **RULES)
    assert expected.tied >= 0.8
    assert expected.earned + expected.harmful < 0.01


def test_what_has_not_settled_it_is_no_answer():
    noise = Noise(0.001, 0.001)
    assert chances(0.05, noise.of_difference(3), 6, level=0.05, min_gain=0.01).settled > 0.999
    found, _ = smallest_design(0.05, noise, Design(6, 3), **RULES)
    assert found == Design(7, 3)  # 5 more replays; a further draw in 6 blocks would be 6
    # with two other orders a block costs 7: the further draw is the fewest replays
    found, _ = smallest_design(0.05, noise, Design(6, 3, 2), **RULES)
    assert found == Design(6, 4, 2)
    assert found.replays - Design(6, 3, 2).replays == 6
    found, _ = smallest_design(0.05, noise, Design(6, None), **RULES)
    assert found == Design(7, None)


def test_the_design_found_is_the_cheapest():
    noise, have = Noise(0.006, 0.02), Design(3, 2)
    found, expected = smallest_design(0.02, noise, have, **RULES)
    assert expected.settled >= 0.8
    for draws in (2, 3, 4, 5, 7, 9, 14, 19, 29):
        for blocks in range(5, 60):
            if Design(blocks, draws).replays < found.replays:
                worse = chances(0.02, noise.of_difference(draws), blocks, level=0.05, min_gain=0.01)
                assert worse.settled < 0.8, (blocks, draws)


def test_more_draws_are_bought_where_they_are_the_noise():
    have = Design(1, 1)
    quiet_policy, _ = smallest_design(0.02, Noise(0.002, 0.03), have, **RULES)
    quiet_draws, _ = smallest_design(0.02, Noise(0.03, 0.002), have, **RULES)
    assert quiet_policy.draws > quiet_draws.draws
    assert quiet_draws.blocks > quiet_policy.blocks


def test_the_exact_tier_costs_a_capture_per_block():
    have = Design(2, None)
    found, _ = smallest_design(0.05, Noise(0.01, 0.0), have, **RULES)
    assert found == Design(5, None)
    assert found.replays - have.replays == 3


def test_a_coarse_exact_null_needs_the_blocks_with_which_p_can_fall():
    # a third of a draw: 0.75 per block, and 0.75^11 is the first below 0.05
    found, _ = smallest_design(0.05, Noise(0.001, 0.0), Design(6, None), exact_draws=1 / 3, **RULES)
    assert found == Design(11, None)


def test_a_gain_at_the_margin_is_never_settled():
    assert smallest_design(0.01, Noise(0.02, 0.02), Design(5, 3), **RULES) is None
