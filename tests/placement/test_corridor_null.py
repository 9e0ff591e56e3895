"""The null distribution: exact against enumeration, and its moments against it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safesync.placement import Null
from safesync.placement.null import _check_total


def test_null_equals_the_enumeration(small):
    corridor, schedules = small
    cost = np.random.default_rng(6).integers(0, 9, corridor.n_starts)
    for n, rows in schedules.items():
        values, times = np.unique(corridor.total_cost(rows, cost), return_counts=True)
        null = corridor.null(n, cost)
        np.testing.assert_array_equal(null.values, values)
        np.testing.assert_array_equal(null.probabilities, times / len(rows))
        assert null.p_at_most(values[0]) == times[0] / len(rows)
        assert null.p_at_most(values[0] - 1) == 0.0
        assert null.p_at_most(values[-1]) == pytest.approx(1.0, abs=1e-15)
        assert null.p_at_least(values[-1]) == times[-1] / len(rows)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_null_mean_and_sd_are_those_of_all_schedules(make_corridor, enumeration, data):
    h_min, width = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 5))
    merge, horizon = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 30))
    blocking = data.draw(st.booleans()) or h_min < merge
    if horizon / h_min * np.log(width + 1) > 12:
        return
    corridor = make_corridor(h_min, h_min + width, merge, horizon, blocking)
    cost = np.array(
        data.draw(
            st.lists(st.integers(0, 50), min_size=corridor.n_starts, max_size=corridor.n_starts)
        ),
        dtype=np.int64,
    )
    for n, rows in enumeration(corridor).items():
        totals, null = corridor.total_cost(rows, cost), corridor.null(n, cost)
        assert null.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
        assert null.mean == pytest.approx(totals.mean(), abs=1e-9)
        assert null.sd == pytest.approx(totals.std(), abs=1e-9)
        mean, sd = corridor.moments(n, cost)
        assert mean == pytest.approx(totals.mean(), abs=1e-9)
        # The variance comes from sums of squares as large as (50 n)**2, in float64.
        assert sd**2 == pytest.approx(totals.var(), abs=1e-14 * (50 * n) ** 2)


def _waves(n_starts, top):
    t = np.arange(n_starts)
    return np.rint(top / 2 * (1 + np.sin(t / 150.0) * np.cos(t / 61.0))).astype(np.int64)


@pytest.mark.parametrize("n", [8, 14, 24])
def test_null_agrees_with_samples_and_moments_at_full_size(paper, n):
    cost = _waves(paper.n_starts, 70)
    null = paper.null(n, cost)
    draws = paper.total_cost(paper.sample(n, 100_000, np.random.default_rng(n)), cost)
    assert null.p_at_most(null.values[-1]) == pytest.approx(1.0, abs=1e-12)
    for share in (0.01, 0.2, 0.5, 0.9):
        at = np.quantile(draws, share)
        p = null.p_at_most(at)
        assert (draws <= at).mean() == pytest.approx(p, abs=5 * np.sqrt(p * (1 - p) / 1e5))
    mean, sd = paper.moments(n, cost)
    assert (mean, sd) == (pytest.approx(null.mean, rel=1e-12), pytest.approx(null.sd, rel=1e-9))


def test_the_null_reaches_down_to_the_optimum_and_no_further(paper):
    # The tail is some 1e-30: sums of differences would lose it or invent totals below it.
    cost = _waves(paper.n_starts, 70)
    for n in (10, 14, 20):
        least = paper.total_cost(paper.optimum(n, cost), cost)
        null = paper.null(n, cost)
        assert null.values[0] == least
        # No probability is finer than one schedule.
        assert null.probabilities[0] > 0.999 / paper.count(n)


def test_a_tail_of_one_schedule_has_its_exact_probability(paper):
    # Free starts at one schedule only: total 0 is that schedule, 1 in some 1e32.
    gaps = paper.optimum(14, np.random.default_rng(2).normal(size=paper.n_starts))
    cost = np.ones(paper.n_starts, dtype=np.int64)
    cost[paper.start_steps(gaps)] = 0
    null = paper.null(14, cost)
    assert null.values[0] == 0
    assert null.p_at_most(0) == pytest.approx(1 / paper.count(14), rel=1e-12)


def test_long_budgets_do_not_overflow(make_corridor):
    corridor, n = make_corridor(2, 18, 1, 2860), 260
    assert corridor.count(n) > 10**308
    cost = (np.arange(corridor.n_starts) % 40 < 20).astype(np.int64)
    null = corridor.null(n, cost)
    assert null.probabilities.sum() == pytest.approx(1.0)
    assert corridor.moments(n, cost) == pytest.approx((null.mean, null.sd), rel=1e-7)


def test_schedules_lost_to_underflow_are_noticed(paper):
    exact = paper.count(14)
    _check_total(paper.grid, 14, exact / 2.0**90, 90)
    with pytest.raises(ValueError, match=r"null of 14 merges leaves the range of float64"):
        _check_total(paper.grid, 14, exact / 2.0**90 * (1 - 1e-7), 90)


@pytest.mark.parametrize("n", [1203, 3595])
def test_moments_of_a_day_agree_with_samples(day, n):
    # Long budgets use tilts of either sign; the number of schedules leaves the range of float64.
    cost = _waves(day.n_starts, 70)
    mean, sd = day.moments(n, cost)
    draws = day.total_cost(day.sample(n, 3000, np.random.default_rng(n)), cost)
    assert draws.mean() == pytest.approx(mean, abs=4 * sd / np.sqrt(3000))
    assert draws.std() == pytest.approx(sd, rel=4 / np.sqrt(6000))


def test_float_costs_have_moments(small):
    corridor, schedules = small
    cost = np.random.default_rng(7).normal(1e6, 1.0, corridor.n_starts)
    for n, rows in schedules.items():
        totals = corridor.total_cost(rows, cost)
        assert corridor.moments(n, cost) == (
            pytest.approx(totals.mean(), rel=1e-12),
            pytest.approx(totals.std(), abs=1e-6),
        )


def test_convolution_is_the_sum_of_independent_blocks():
    coin = Null(np.array([0, 3]), np.array([0.25, 0.75]))
    die = Null(np.arange(1, 7), np.full(6, 1 / 6))
    both = Null.convolve([coin, die, coin])
    totals = {}
    for a, p in zip(coin.values, coin.probabilities, strict=True):
        for b, q in zip(die.values, die.probabilities, strict=True):
            for c, r in zip(coin.values, coin.probabilities, strict=True):
                totals[a + b + c] = totals.get(a + b + c, 0) + p * q * r
    np.testing.assert_array_equal(both.values, sorted(totals))
    np.testing.assert_allclose(both.probabilities, [totals[v] for v in sorted(totals)])
    assert both.mean == pytest.approx(2 * coin.mean + die.mean)


def test_costs_that_have_no_exact_null_are_refused(paper, day):
    with pytest.raises(ValueError, match="non-negative integers"):
        paper.null(12, np.zeros(paper.n_starts))
    with pytest.raises(ValueError, match="non-negative integers"):
        paper.null(12, np.full(paper.n_starts, -1))
    with pytest.raises(ValueError, match=r"1800 merges needs some \d+ GB .* use moments"):
        day.null(1800, np.arange(day.n_starts) % 50)
