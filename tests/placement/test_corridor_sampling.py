"""Sampling: uniform over the whole feasible set, at every size."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from safesync.placement.sampling import PlainSampler, TiltedSampler, sampler, tilted_total


def uniformity_p(draws, schedules):
    """p of the chi-square test that draws are uniform over the rows of schedules, none outside."""
    index = {tuple(row): i for i, row in enumerate(schedules.tolist())}
    found, times = np.unique(draws, axis=0, return_counts=True)
    counts = np.zeros(len(schedules))
    for row, number in zip(found.tolist(), times, strict=True):
        counts[index[tuple(row)]] = number
    return stats.chisquare(counts).pvalue


def test_samples_are_uniform_over_all_feasible_schedules(small):
    corridor, schedules = small
    rng = np.random.default_rng(20)
    for n, rows in schedules.items():
        draws = corridor.sample(n, 40 * len(rows) + 2000, rng)
        assert draws.dtype == np.int64 and draws.shape[1] == n
        if n and len(rows) > 1:
            assert uniformity_p(draws, rows) > 1e-3, n


def test_the_chi_square_catches_a_sampler_that_is_not_uniform(make_corridor, enumeration):
    # The tempting shortcut: each gap uniform in the range that the rest can still make up for.
    corridor = make_corridor(2, 7, 3, 40)
    n, rng = 5, np.random.default_rng(1)
    low, high = corridor.grid.excess(n)
    draws = np.zeros((20_000, n), dtype=np.int64)
    for k in range(n):
        spent, rest = draws.sum(axis=1), (n - k - 1) * 5
        draws[:, k] = rng.integers(
            np.maximum(0, low - spent - rest), np.minimum(5, high - spent) + 1
        )
    assert uniformity_p(draws + 2, enumeration(corridor)[n]) < 1e-9


@pytest.mark.parametrize("n", [4, 5, 6, 7])
def test_the_tilted_tables_are_uniform_too(make_corridor, enumeration, n):
    corridor = make_corridor(2, 7, 3, 40)
    rows = enumeration(corridor)[n]
    tilted = TiltedSampler(n, 5, *corridor.grid.excess(n))
    assert len(tilted.checkpoints) > 1
    uniforms = np.random.default_rng(n).random((40 * len(rows) + 2000, n))
    draws = tilted.excess(uniforms) + 2
    assert uniformity_p(draws, rows) > 1e-3
    # The same uniforms select the same schedules, up to a rounding at a boundary.
    np.testing.assert_array_equal(draws, corridor.transform(n, uniforms))


def test_tables_hold_the_exact_counts(paper):
    for n in (8, 12, 16, 24):
        low, high = paper.grid.excess(n)
        table = PlainSampler(n, 384, low, high)
        mass = table.rows[-1][table.high + 1] - table.rows[-1][table.low]
        assert math.isclose(mass, paper.count(n), rel_tol=1e-13)


@pytest.mark.parametrize("n", [1202, 1260, 3599])
def test_day_long_tables_hold_the_exact_counts(day, n):
    low, high = day.grid.excess(n)
    table = sampler(n, 384, low, high)
    assert isinstance(table, TiltedSampler)
    first = max(table.checkpoints)
    logs = table._logs(*table._block(first, 0, table.high)[-1], 0, table.high)
    log_mass = logs[-1] + math.log1p(-math.exp(logs[table.low] - logs[-1]))
    log_mass += n * math.log(tilted_total(384, table.log_tilt))
    exact = day.count(n)
    shift = max(0, exact.bit_length() - 1000)
    assert log_mass == pytest.approx(math.log(exact >> shift) + shift * math.log(2), abs=1e-9)


def test_a_day_is_sampled_inside_the_corridor_and_without_a_trend(day):
    n, draws = 1300, 400
    gaps = day.sample(n, draws, np.random.default_rng(8))
    assert all(day.feasible(row) is None for row in gaps)
    # Gaps of a uniform schedule are exchangeable: early and late ones have one mean.
    early, late = gaps[:, : n // 2].mean(axis=1), gaps[:, n // 2 :].mean(axis=1)
    assert stats.ttest_rel(early, late).pvalue > 1e-3
    assert gaps.std(axis=0).min() > 0


def test_gaps_are_exchangeable_at_full_size(paper):
    for n in (8, 15, 22):
        gaps = paper.sample(n, 20_000, np.random.default_rng(n))
        assert all(paper.feasible(row) is None for row in gaps[:200])
        same = stats.ks_2samp(gaps[:10_000, 0], gaps[10_000:, -1])
        assert same.pvalue > 1e-3


def test_samples_follow_the_generator_and_fewer_are_a_prefix_of_more(paper, day):
    for corridor, n, draws in ((paper, 12, 40_000), (day, 1202, 6)):
        many = corridor.sample(n, draws, np.random.default_rng(5))
        few = corridor.sample(n, 5, np.random.default_rng(5))
        np.testing.assert_array_equal(few, many[:5])
        other = corridor.sample(n, 5, np.random.default_rng(6))
        assert (other != few).any()


def test_rounding_never_selects_a_sum_beyond_the_largest():
    # One value of at most 1 cannot be 2; its logarithmic table once held a trace of weight there.
    excess = TiltedSampler(4, 1, 2, 4).excess(np.zeros((1, 4)))
    assert excess.min() >= 0 and excess.max() <= 1 and 2 <= excess.sum() <= 4


def test_no_draws_and_no_merges(make_corridor, day):
    rng = np.random.default_rng(0)
    assert make_corridor(2, 7, 3, 40).sample(5, 0, rng).shape == (0, 5)
    assert make_corridor(5, 9, 4, 4).sample(0, 3, rng).shape == (3, 0)
    assert day.sample(3600, 2, rng).tolist() == [[128] * 3600] * 2
    assert day.sample(1202, 0, rng).shape == (0, 1202)


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_every_sample_is_feasible(make_corridor, data):
    h_min = data.draw(st.integers(1, 40))
    merge = data.draw(st.integers(1, 10))
    blocking = data.draw(st.booleans()) or h_min < merge
    width = data.draw(st.integers(0, 60))
    horizon = data.draw(st.integers(1, 500))
    corridor = make_corridor(h_min, h_min + width, merge, horizon, blocking)
    n = data.draw(st.sampled_from(corridor.grid.budgets()))
    # Uniforms at the ends of [0, 1) are where rounding would step outside.
    ends = st.sampled_from([0.0, 0.5, 1 - 2**-53])
    edge = np.array([data.draw(st.lists(ends, min_size=n, max_size=n))])
    low, high = corridor.grid.excess(n)
    gaps = [corridor.transform(n, edge), corridor.sample(n, 20, np.random.default_rng(0))]
    if n:
        gaps.append(h_min + TiltedSampler(n, width, low, high).excess(edge))
    for row in np.concatenate(gaps):
        assert corridor.feasible(row) is None
