"""The stopping rule against brute force, the forecasts by hand, and what they make of a load."""

import dataclasses
import itertools

import numpy as np
import pytest

from safesync.placement import Corridor
from safesync.placement.overlap import overlap_cost
from safesync.policies import load_policy
from safesync.policies.base import Block
from safesync.policies.replay import decide_schedule
from safesync.policies.stopping import (
    LoadForecast,
    StoppingParameters,
    StoppingPolicy,
    continuation,
    window_arrivals,
)
from safesync.policies.wa_horizon import empirical_chain
from safesync.policies.wa_mmpp import filtered, spell_chain
from safesync.workload.families import Mmpp2

OURS = ["wa_horizon", "wa_mmpp"]
CORRIDOR = Corridor(128, 512, 0.0625, 8.0, 100.0)


def built(name, **parameters):
    policy = load_policy(name)
    return policy(policy.Parameters(**parameters))


def best_of_all_rules(transition, costs, level):
    """Expected cost of the best rule: every rule is tried, on every path."""
    stages, levels = costs.shape
    best = np.inf
    for stops in itertools.product([False, True], repeat=(stages - 1) * levels):
        rule = np.vstack([np.reshape(stops, (stages - 1, levels)), np.ones(levels, dtype=bool)])
        expected = 0.0
        for path in itertools.product(range(levels), repeat=stages):
            chance = np.prod([transition[i, j] for i, j in itertools.pairwise((level, *path))])
            stop = next(k for k, at in enumerate(path) if rule[k, at])
            expected += chance * costs[stop, path[stop]]
        best = min(best, expected)
    return best


@pytest.mark.parametrize(("levels", "stages"), [(1, 4), (2, 1), (2, 3), (2, 4), (3, 3)])
def test_continuation_is_that_of_the_best_of_all_rules(levels, stages):
    rng = np.random.default_rng(levels * 10 + stages)
    for _ in range(3):
        transition = rng.dirichlet(np.ones(levels), size=levels)
        costs = rng.integers(0, 20, (stages, levels)).astype(float)
        expected = [best_of_all_rules(transition, costs, level) for level in range(levels)]
        np.testing.assert_allclose(continuation(transition, costs), expected)


def test_the_right_to_stop_later_is_worth_something():
    coin = np.full((2, 2), 0.5)
    costs = np.array([[0.0, 10.0]] * 3)
    # 10 only if all three throws are bad; a plan made now would cost 5
    np.testing.assert_allclose(continuation(coin, costs), 10 / 8)


def test_window_arrivals_by_hand():
    transition = np.array([[0.5, 0.5], [0.0, 1.0]])
    rates = np.array([2.0, 6.0])
    # from level 0: 2, then (2 + 6) / 2 = 4, then 0.25 * 2 + 0.75 * 6 = 5
    np.testing.assert_allclose(window_arrivals(transition, rates, 2.0), [6.0, 12.0])
    np.testing.assert_allclose(window_arrivals(transition, rates, 2.5), [8.5, 15.0])


class Planted(StoppingPolicy):
    """A chain that is given."""

    name = "planted"
    Parameters = StoppingParameters
    load = LoadForecast(
        np.array([0.25, 0.75]), np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([1.0, 5.0])
    )

    def _learn(self, count):
        """Nothing to learn: the load is given."""

    def _forecast(self):
        return self.load


def planted(**parameters):
    policy = Planted(StoppingParameters(**parameters))
    policy.begin(Block(CORRIDOR, 2, np.random.default_rng(0)))
    return policy


SECONDS = {"step_s": 0.5, "merge_s": 2.0, "h_max": 10, "h_min": 4}


def test_advantage_of_merging_now_by_brute_force(seen):
    policy = planted(
        staleness_weight=0.3,
        staleness_scale_s=10.0,
        loss_weight=0.0,
        tokens_weight=2.0,
        tokens_scale=1000.0,
        overlap_weight=0.5,
        overlap_scale=4.0,
    )
    at = seen(
        **SECONDS,
        gap=5,
        in_flight=3,
        counts_per_s=np.array([2, 4, 3]),
        tokens=np.array([500, 900]),
        staleness_s=np.array([2.5, 2.5]),
    )
    load = Planted.load
    # merges at gaps 5 (now), 7, 9 and, half a second later, 10; two islands
    learners = [
        2 * np.mean([max(0, 1 - 100 * g / 1000), max(0, 1 - 180 * g / 1000)]) + 0.3 * g / 20
        for g in (5, 7, 9, 10)
    ]
    arrivals = load.rates_rps + load.transition @ load.rates_rps
    # one call so far: 3 requests in flight, 9 arrived in 3 s, so a request stays 1 s
    later = arrivals + 1.0 * load.rates_rps
    costs = np.array([learner + 0.125 * later for learner in learners[1:]])
    now = learners[0] + 0.125 * (3 + load.belief @ arrivals)
    waiting = load.belief @ [best_of_all_rules(load.transition, costs, i) for i in (0, 1)]
    decision = policy.decide(at)
    assert decision.score == pytest.approx(waiting - now)
    assert decision.merge == (waiting >= now)
    np.testing.assert_allclose(policy.learners_cost(at, np.array([0, 2, 4, 5])), learners)


@pytest.mark.parametrize(("in_flight", "merge"), [(0, True), (40, False)])
def test_it_merges_when_now_is_cheapest(seen, in_flight, merge):
    at = seen(**SECONDS, gap=5, in_flight=in_flight)
    policy = planted(loss_weight=0, tokens_weight=0)
    policy.load = dataclasses.replace(Planted.load, belief=np.array([1.0, 0.0]))
    decision = policy.decide(at)
    assert decision.merge is merge
    assert (decision.score >= 0) is merge


def test_learners_alone_choose_the_middle(seen):
    """Without a load it waits for enough tokens (as far as whole seconds can tell), no longer."""
    policy = planted(overlap_weight=0, loss_weight=0, tokens_weight=1, tokens_scale=512 * 1024.0)
    for gap, merge in ((128, False), (240, False), (256, True), (400, True)):
        at = seen(gap=gap, tokens=np.full(2, 2048 * gap), staleness_s=np.full(2, gap / 16))
        assert policy.decide(at).merge is merge


def test_at_h_max_and_without_a_second_it_decides_nothing(seen):
    for at in (seen(gap=512), seen(counts_per_s=np.array([], dtype=int))):
        decision = planted().decide(at)
        assert (decision.merge, decision.score) == (False, 0.0)


def test_a_silent_start_needs_no_latency(seen):
    decision = planted().decide(seen(counts_per_s=np.zeros(3, dtype=int), in_flight=0))
    assert np.isfinite(decision.score)


# --- the chain of wa_horizon


def test_empirical_chain_by_hand():
    # loads of one second, two levels at the median 1: quiet quiet busy quiet busy busy quiet
    chain = empirical_chain(np.array([1, 0, 5, 1, 7, 4, 1]), levels=2, load_s=1, prior=1.0)
    shares = np.array([4, 3]) / 7
    mean = 19 / 7
    moves = np.array([[1, 2], [2, 1]])
    np.testing.assert_allclose(chain.transition, (moves + shares) / 4)
    # after quiet seconds 0, 5 and 7 arrive, after busy ones 1, 4 and 1
    np.testing.assert_allclose(chain.rates_rps, [(12 + mean) / 4, (6 + mean) / 4])
    assert chain.belief.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("levels", [1, 3, 5])
@pytest.mark.parametrize("seconds", [1, 2, 30])
def test_every_chain_is_a_chain(levels, seconds):
    counts = np.random.default_rng(seconds).poisson(2, seconds)
    chain = empirical_chain(counts, levels, 2, 0.5)
    np.testing.assert_allclose(chain.transition.sum(axis=1), 1)
    assert chain.belief.sum() == 1
    assert np.isfinite(chain.rates_rps).all()


# --- the filter of wa_mmpp


def test_filter_is_bayes_rule():
    belief, rates = np.array([0.7, 0.3]), np.array([1.0, 4.0])
    transition = np.array([[0.9, 0.1], [0.2, 0.8]])
    likelihood = np.exp(-rates) * rates**3 / 6
    joint = np.array([[0.63, 0.07], [0.06, 0.24]]) * likelihood
    np.testing.assert_allclose(filtered(belief, transition, rates, 3), joint / joint.sum())
    assert np.isfinite(filtered(belief, transition, rates, 10_000)).all()


def test_spell_chain_by_hand():
    np.testing.assert_allclose(spell_chain(np.array([10.0, 4.0]), 1), [[0.9, 0.1], [0.25, 0.75]])
    two = spell_chain(np.array([10.0, 4.0]), 2)
    expected = [[0.8, 0.2, 0, 0], [0, 0.8, 0.2, 0], [0, 0, 0.5, 0.5], [0.5, 0, 0, 0.5]]
    np.testing.assert_allclose(two, expected)


@pytest.mark.parametrize("phases", [1, 2])
def test_mean_spells_of_the_chain_are_those_asked_for(phases):
    chain = spell_chain(np.array([12.0, 5.0]), phases)
    quiet = chain[:phases, :phases]
    # expected time to leave, from the first phase: the fundamental matrix's row sum
    assert np.linalg.inv(np.eye(phases) - quiet)[0].sum() == pytest.approx(12.0)


def test_the_filter_learns_rates_and_spells():
    rng = np.random.default_rng(5)
    state, counts, states = 0, [], []
    for _ in range(4_000):
        state = 1 - state if rng.random() < (1 / 25, 1 / 10)[state] else state
        states.append(state)
        counts.append(rng.poisson((0.5, 5.0)[state]))
    policy = built("wa_mmpp", phases=1)
    policy.begin(Block(CORRIDOR, 2, rng))
    right = 0
    for count, truth in zip(counts, states, strict=True):
        policy._learn(count)
        right += (policy._belief[1] > 0.5) == truth
    assert right / len(states) > 0.95
    np.testing.assert_allclose(policy._rates_rps(), [0.5, 5.0], rtol=0.1)
    leave = policy._transition()[[0, 1], [1, 0]]
    np.testing.assert_allclose(1 / leave, [25, 10], rtol=0.25)


# --- on simulated loads


def relative_overlap(policy, trace, corridor):
    rows, _ = decide_schedule(policy, corridor, trace)
    cost = overlap_cost(trace.arrival_s, trace.done_s, corridor)
    gaps = corridor.gaps_from_starts(rows["start_s"].to_numpy())
    return corridor.total_cost(gaps, cost) / corridor.moments(len(gaps), cost)[0]


@pytest.mark.parametrize("name", OURS)
def test_overlaps_fewer_requests_than_chance_at_its_budget(name, corridor, simulated):
    family = Mmpp2(rates_rps=(0.5, 4.5), mean_sojourn_s=(20.0, 8.0))
    found = [
        relative_overlap(built(name), simulated(seed, family), corridor) for seed in range(40, 52)
    ]
    assert np.mean(found) < 0.85


@pytest.mark.parametrize("name", OURS)
def test_defaults_use_the_middle_of_the_corridor(name, corridor, simulated):
    facts = [decide_schedule(built(name), corridor, simulated(seed))[1] for seed in range(12)]
    assert np.mean([fact["budget"] in (3, 4) for fact in facts]) >= 0.8
    assert np.mean([fact["forced_share"] for fact in facts]) < 0.1


@pytest.mark.parametrize("name", OURS)
def test_steps_of_more_than_a_second(name, simulated):
    slow = Corridor(4, 16, 2.0, 8.0, 100.0)
    rows, _ = decide_schedule(built(name), slow, simulated(3))
    assert slow.feasible(rows["start_s"].to_numpy()) is None


def test_schedules_are_pinned(corridor, simulated):
    def steps(name):
        return decide_schedule(built(name), corridor, simulated(1))[0]["step"].tolist()

    assert steps("wa_horizon") == [217, 416, 635, 821]
    assert steps("wa_mmpp") == [230, 434, 720]
