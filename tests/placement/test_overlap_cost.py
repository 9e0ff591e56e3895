"""Overlap cost: against the definition, request by request."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safesync.placement import Corridor, overlap_cost


def _by_definition(arrival_s, done_s, corridor, every=1):
    cost = []
    for j in range(0, corridor.n_starts, every):
        start, end = j * corridor.step_s, (j + corridor.grid.merge) * corridor.step_s
        cost.append(
            sum(a <= start < d or start <= a < end for a, d in zip(arrival_s, done_s, strict=True))
        )
    return cost


# Quarters of a step put many times exactly on a window's start or end.
quarters = st.lists(st.tuples(st.integers(-8, 60), st.integers(0, 30)), max_size=25)


@settings(deadline=None, max_examples=100)
@given(quarters, st.integers(1, 5), st.integers(1, 14))
def test_cost_is_the_definition(rows, merge, horizon):
    corridor = Corridor(1, 4, 1.0, float(merge), float(horizon))
    arrival_s = np.array([a / 4 for a, _ in rows])
    done_s = arrival_s + np.array([length / 4 for _, length in rows])
    cost = overlap_cost(arrival_s, done_s, corridor)
    assert cost.dtype == np.int64 and cost.shape == (corridor.n_starts,)
    assert cost.tolist() == _by_definition(arrival_s, done_s, corridor)


def test_the_ends_of_window_and_request():
    corridor = Corridor(1, 4, 1.0, 2.0, 8.0)

    def met(arrival, done):
        cost = overlap_cost(np.array([arrival]), np.array([done]), corridor)
        return np.flatnonzero(cost).tolist()

    assert met(3.0, 5.0) == [2, 3, 4]  # arrives at a start: inside; done at a start: gone
    assert met(3.5, 3.75) == [2, 3]
    assert met(3.0, 3.0) == [2, 3]  # failed at once: it still arrives in these windows
    assert met(-1.0, 0.5) == [0]
    assert met(20.0, 21.0) == []


def test_a_request_counts_once_per_window_and_schedules_add_up():
    corridor = Corridor(2, 4, 1.0, 2.0, 12.0)
    arrival_s, done_s = np.array([0.5, 5.0]), np.array([11.0, 6.0])
    cost = overlap_cost(arrival_s, done_s, corridor)
    gaps = np.array([2, 2])  # windows 2..4 and 6..8
    assert corridor.total_cost(gaps, cost) == 2
    assert cost[corridor.start_steps(gaps)].tolist() == [1, 1]


def test_order_of_rows_does_not_matter(paper):
    rng = np.random.default_rng(0)
    arrival_s = rng.uniform(0, 600, 2000)
    done_s = arrival_s + rng.exponential(2.0, 2000)
    cost = overlap_cost(arrival_s, done_s, paper)
    order = rng.permutation(2000)
    np.testing.assert_array_equal(cost, overlap_cost(arrival_s[order], done_s[order], paper))
    assert cost.tolist()[::97] == _by_definition(arrival_s, done_s, paper, 97)


def test_no_requests_and_no_room():
    none = np.array([])
    assert overlap_cost(none, none, Corridor(1, 4, 1.0, 2.0, 8.0)).tolist() == [0] * 7
    assert overlap_cost(none, none, Corridor(1, 4, 1.0, 2.0, 1.0)).tolist() == []


def test_bad_columns_are_refused():
    corridor = Corridor(1, 4, 1.0, 2.0, 8.0)
    with pytest.raises(ValueError, match=r"one length, not of shapes \(2,\) and \(1,\)"):
        overlap_cost(np.zeros(2), np.zeros(1), corridor)
    with pytest.raises(ValueError, match="done_s of row 1 is nan"):
        overlap_cost(np.zeros(2), np.array([1.0, np.nan]), corridor)
    with pytest.raises(ValueError, match=r"row 1 is done at 2 s, before it arrives at 3 s"):
        overlap_cost(np.array([0.0, 3.0]), np.array([1.0, 2.0]), corridor)
