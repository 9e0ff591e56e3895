import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safesync.protocol.percentiles import percentile


def test_known_ranks():
    values = np.arange(1, 101)
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.95) == 95
    assert percentile(values, 0.99) == 99
    assert percentile(np.arange(1, 21), 0.95) == 19


def test_never_exceeds_the_maximum_of_equal_samples():
    assert percentile([0.147] * 7, 0.99) == 0.147


def test_failures_are_infinite_and_do_not_spoil_lower_ranks():
    values = [1.0, 2.0, 3.0, math.inf]
    assert percentile(values, 0.75) == 3.0
    assert percentile(values, 0.76) == math.inf


def test_nothing_has_no_percentile():
    assert math.isnan(percentile([], 0.5))


@pytest.mark.parametrize("quantile", [0, -0.1, 1.1])
def test_refuses_a_quantile_outside_its_range(quantile):
    with pytest.raises(ValueError, match="outside"):
        percentile([1.0], quantile)


@given(
    st.lists(st.floats(0, 1e3) | st.just(math.inf), min_size=1, max_size=60),
    st.integers(1, 100),
)
def test_is_the_smallest_value_that_covers_the_share(values, hundredths):
    found = percentile(values, hundredths / 100)
    covered = sum(value <= found for value in values)
    below = sum(value < found for value in values)
    assert found in values
    assert 100 * covered >= hundredths * len(values)
    assert 100 * below < hundredths * len(values)
