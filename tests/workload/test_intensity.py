"""The piecewise-constant intensity: lookups by hand, and exact Poisson simulation."""

import numpy as np
import pytest
from scipy import stats

from safesync.workload.families import Intensity

PIECES = Intensity(np.array([0.0, 2.0, 5.0, 10.0]), np.array([3.0, 0.0, 8.0]))


def test_rate_is_that_of_the_piece_which_starts_there():
    assert PIECES.rate([0.0, 1.999, 2.0, 4.999, 5.0, 9.999]).tolist() == [3, 3, 0, 0, 8, 8]
    assert PIECES.expected() == 3 * 2 + 8 * 5


@pytest.mark.parametrize("outside", [-0.001, 10.0])
def test_rate_outside_the_horizon_is_an_error(outside):
    with pytest.raises(ValueError, match=r"\[0, 10\)"):
        PIECES.rate(outside)


def test_arrivals_are_sorted_inside_and_absent_where_the_rate_is_zero():
    times = PIECES.arrivals(np.random.default_rng(1))
    assert times.dtype == np.float64
    assert np.all(np.diff(times) >= 0)
    assert times[0] >= 0
    assert times[-1] < 10
    assert not np.any((times >= 2) & (times < 5))


def test_counts_of_each_piece_are_poisson_and_times_uniform():
    runs = [PIECES.arrivals(np.random.default_rng(seed)) for seed in range(2_000)]
    for start, end, mean in ((0, 2, 6), (5, 10, 40)):
        counts = np.array([np.count_nonzero((t >= start) & (t < end)) for t in runs])
        assert abs(counts.mean() - mean) < 4 * np.sqrt(mean / len(runs))
        dispersion = counts.var(ddof=1) / counts.mean()
        assert abs(dispersion - 1) < 4 * np.sqrt(2 / len(runs))
        pooled = np.concatenate([t[(t >= start) & (t < end)] for t in runs])
        assert stats.kstest((pooled - start) / (end - start), "uniform").pvalue > 0.001


def test_no_arrival_reaches_the_end_of_its_piece():
    class Last:
        """A generator whose uniforms are as near to 1 as float64 gets."""

        def poisson(self, mean):
            return np.ones(len(mean), dtype=np.int64)

        def random(self, size):
            return np.full(size, np.nextafter(1.0, 0.0))

    pieces = Intensity(np.array([0.0, 1_000.0, 1_001.0]), np.array([1.0, 1.0]))
    first, second = pieces.arrivals(Last())
    assert first < 1_000
    assert 1_000 <= second < 1_001  # 1000 + (1 - 1.1e-16) rounds to 1001
