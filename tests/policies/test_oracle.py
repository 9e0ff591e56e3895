"""wa_offline is the bound at its budget; forecast errors lead from foresight to the forecaster."""

import itertools

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from safesync.placement import Corridor
from safesync.placement.overlap import overlap_cost
from safesync.policies import load_policy
from safesync.policies.base import Block
from safesync.policies.foresight import Foresight
from safesync.policies.replay import decide_schedule

WaOffline = load_policy("wa_offline")
FORECASTING = ["wa_forecast", "wa_horizon", "wa_mmpp"]
SMALL = Corridor(h_min=8, h_max=20, step_s=1.0, merge_s=4.0, horizon_s=50.0)


def built(name, **parameters):
    policy = load_policy(name)
    return policy(policy.Parameters(**parameters))


def gaps_of(rows):
    return np.diff(rows["step"].to_numpy(), prepend=0)


def cost_of(trace, corridor):
    return overlap_cost(trace.arrival_s, trace.done_s, corridor)


def cheapest(cost, budget):
    every = itertools.product(range(8, 21), repeat=budget)
    feasible = (np.array(gaps) for gaps in every)
    return min(
        int(SMALL.total_cost(gaps, cost)) for gaps in feasible if SMALL.feasible(gaps) is None
    )


@pytest.mark.parametrize("budget", [2, 3])
def test_no_schedule_of_the_same_budget_is_cheaper(simulated, budget):
    trace, reference = simulated(7), pd.DataFrame({"merge": range(budget)})
    rows, facts = decide_schedule(WaOffline(), SMALL, trace, reference=reference)
    cost = cost_of(trace, SMALL)
    assert facts["budget"] == budget
    assert facts["deployable"] is False
    assert SMALL.total_cost(gaps_of(rows), cost) == cheapest(cost, budget)
    assert rows["score"].sum() == -cheapest(cost, budget)
    assert set(rows["reason"]) == {"policy"}


@pytest.mark.parametrize("name", ["fixed_h", "wa_forecast", "adaptive_load"])
def test_it_is_compared_at_the_budget_of_another(corridor, simulated, name):
    trace = simulated(4)
    theirs, _ = decide_schedule(load_policy(name)(), corridor, trace)
    oracle = WaOffline(WaOffline.Parameters(budget_from=name))
    ours, _ = decide_schedule(oracle, corridor, trace, reference=theirs)
    cost = cost_of(trace, corridor)
    assert len(ours) == len(theirs)
    totals = [corridor.total_cost(gaps_of(rows), cost) for rows in (ours, theirs)]
    assert totals[0] < totals[1]


def test_without_a_reference_it_takes_the_least_overlap_per_merge(simulated):
    trace = simulated(7)
    rows, _ = decide_schedule(WaOffline(), SMALL, trace)
    cost = cost_of(trace, SMALL)
    free = [budget.merges for budget in SMALL.budgets() if not budget.pinned]
    assert free == [2, 3]
    means = {budget: cheapest(cost, budget) / budget for budget in free}
    assert SMALL.total_cost(gaps_of(rows), cost) / len(rows) == min(means.values())


def test_among_equals_the_largest_budget_is_taken(flat):
    rows, _ = decide_schedule(WaOffline(), SMALL, flat())
    assert len(rows) == 3


def test_a_missing_reference_is_an_error_that_names_it(corridor, flat):
    oracle = WaOffline(WaOffline.Parameters(budget_from="wa_diloco"))
    with pytest.raises(ValueError, match="budget_from = 'wa_diloco' needs that policy's schedule"):
        decide_schedule(oracle, corridor, flat())


# --- forecast errors


def test_error_is_multiplied_about_the_truth(simulated, corridor):
    trace = simulated(3)
    truth = cost_of(trace, corridor)
    block = Block(corridor, 2, np.random.default_rng(0), trace=trace)
    at = np.array([200, 900])
    forecast = np.array([[5.0, 40.0], [0.0, 9.0]])
    for error in (0, 0.25, 1, 2):
        expected = truth[at][:, None] + error * (forecast - truth[at][:, None])
        found = Foresight(block, error).apply(forecast, at)
        np.testing.assert_allclose(found, np.maximum(expected, 0))
    assert Foresight(block, None).apply(forecast, at) is forecast


def test_windows_past_the_horizon_have_no_truth(simulated, corridor):
    block = Block(corridor, 2, np.random.default_rng(0), trace=simulated(3))
    last = corridor.n_starts - 1
    found = Foresight(block, 0.0).apply(np.array([-1.0, -1.0]), np.array([last, last + 1]))
    assert found[0] >= 0
    assert found[1] == -1.0


@pytest.mark.parametrize("name", FORECASTING)
def test_factor_one_is_the_forecaster_itself_but_not_deployable(name, corridor, simulated):
    plain, facts = decide_schedule(built(name), corridor, simulated(2))
    one, facts_one = decide_schedule(built(name, forecast_error=1.0), corridor, simulated(2))
    assert one["step"].tolist() == plain["step"].tolist()
    np.testing.assert_allclose(one["score"], plain["score"], atol=1e-9)
    assert (facts["deployable"], facts_one["deployable"]) == (True, False)


@pytest.mark.parametrize("name", FORECASTING)
def test_perfect_foresight_overlaps_less_than_the_forecaster(name, corridor, simulated):
    def relative(error, seed):
        trace = simulated(seed)
        rows, _ = decide_schedule(built(name, forecast_error=error), corridor, trace)
        cost = cost_of(trace, corridor)
        mean = corridor.moments(len(rows), cost)[0]
        return corridor.total_cost(gaps_of(rows), cost) / mean

    perfect, doubled = (np.mean([relative(e, seed) for seed in range(12)]) for e in (0.0, 2.0))
    assert perfect < doubled - 0.1


@pytest.mark.parametrize("name", FORECASTING)
def test_a_negative_factor_is_refused(name):
    with pytest.raises(ValidationError, match="forecast_error"):
        built(name, forecast_error=-0.1)
