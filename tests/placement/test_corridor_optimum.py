"""The optimum: exact against enumeration, a plain dynamic programme and HiGHS."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, milp


def test_optimum_equals_the_enumeration(small):
    corridor, schedules = small
    rng = np.random.default_rng(4)
    for n, rows in schedules.items():
        for cost in (
            rng.integers(0, 9, corridor.n_starts),
            rng.integers(-5, 5, corridor.n_starts),
            rng.normal(size=corridor.n_starts),
        ):
            best = corridor.optimum(n, cost)
            assert best.dtype == np.int64 and corridor.feasible(best) is None
            least = corridor.total_cost(rows, cost).min()
            assert corridor.total_cost(best, cost) == pytest.approx(least, rel=1e-12)


def test_ties_go_to_the_earliest_last_merge_and_so_on_back(small):
    corridor, schedules = small
    cost = np.random.default_rng(5).integers(0, 2, corridor.n_starts)
    for n, rows in schedules.items():
        totals = corridor.total_cost(rows, cost)
        best = corridor.start_steps(rows[totals == totals.min()])
        first = min(best.tolist(), key=lambda starts: starts[::-1])
        assert corridor.start_steps(corridor.optimum(n, cost)).tolist() == first


def _highs(corridor, n, cost):
    """The same problem as a time-indexed integer programme: y[k, t] = 1 if merge k starts at t."""
    steps = corridor.n_starts
    when = np.kron(np.eye(n), np.arange(steps))
    gap = when.copy()
    gap[1:] -= when[:-1]
    pause = np.where(np.arange(n) > 0, corridor.grid.pause, 0)
    # A forced merge h_max after the last window must end after the horizon, by one step or more.
    end_of_last = when[-1] + corridor.grid.merge * np.kron(np.eye(n)[-1], np.ones(steps))
    blocking_merge = corridor.grid.merge if corridor.blocking else 0
    due = corridor.grid.horizon - corridor.grid.h_max - blocking_merge
    solved = milp(
        np.tile(cost, n),
        integrality=np.ones(n * steps),
        bounds=(0, 1),
        constraints=[
            LinearConstraint(np.kron(np.eye(n), np.ones(steps)), 1, 1),
            LinearConstraint(gap, corridor.h_min + pause, corridor.h_max + pause),
            LinearConstraint(end_of_last, due + 1, corridor.grid.horizon),
        ],
    )
    assert solved.status == 0
    return round(solved.fun)


@pytest.mark.parametrize(
    ("shape", "n"),
    [((8, 32, 4, 150, True), 5), ((8, 32, 4, 150, True), 8), ((6, 20, 5, 90, False), 7)],
)
def test_optimum_equals_highs(make_corridor, shape, n):
    corridor = make_corridor(*shape)
    cost = np.random.default_rng(n).integers(0, 60, corridor.n_starts)
    assert corridor.total_cost(corridor.optimum(n, cost), cost) == _highs(corridor, n, cost)


def _plain(corridor, n, cost):
    """Least total, by the recursion as it is written, over every start."""
    grid = corridor.grid
    best = {grid.h_min + d: cost[grid.h_min + d] for d in range(grid.width + 1)}
    for _ in range(n - 1):
        after = {}
        for start, total in best.items():
            for gap in range(grid.h_min, grid.h_max + 1):
                t = start + grid.pause + gap
                if t <= grid.last_start:
                    after[t] = min(after.get(t, np.inf), total + cost[t])
        best = after
    first = grid.final_starts()[0]
    return min(total for t, total in best.items() if t >= first)


@pytest.mark.parametrize("n", [64, 65, 100, 150])
def test_rows_computed_twice_give_the_same_optimum(make_corridor, n):
    # Beyond 64 merges only every sqrt(n)-th row is kept.
    corridor = make_corridor(2, 9, 1, 500)
    cost = np.random.default_rng(n).integers(0, 50, corridor.n_starts)
    best = corridor.optimum(n, cost)
    assert corridor.feasible(best) is None
    assert corridor.total_cost(best, cost) == _plain(corridor, n, cost)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_optimum_is_never_above_a_sample(make_corridor, data):
    h_min, width = data.draw(st.integers(1, 30)), data.draw(st.integers(0, 40))
    merge, horizon = data.draw(st.integers(1, 10)), data.draw(st.integers(1, 400))
    blocking = data.draw(st.booleans()) or h_min < merge
    corridor = make_corridor(h_min, h_min + width, merge, horizon, blocking)
    n = data.draw(st.sampled_from(corridor.grid.budgets()))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    cost = rng.integers(0, 20, corridor.n_starts)
    best = corridor.optimum(n, cost)
    assert corridor.feasible(best) is None
    samples = corridor.sample(n, 200, rng)
    assert corridor.total_cost(best, cost) <= corridor.total_cost(samples, cost).min()


def test_costs_too_large_to_add_exactly_are_refused(paper):
    with pytest.raises(ValueError, match=r"cannot be added exactly over 12 merges"):
        paper.optimum(12, np.full(paper.n_starts, 2**50))
