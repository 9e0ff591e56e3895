"""Deployable policies decide from the past: what comes after a cut changes nothing before it."""

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safesync.placement import Corridor
from safesync.policies import Decision, Policy, load_policy, policy_names
from safesync.policies.replay import decide_schedule
from safesync.workload.families import Mmpp2

CORRIDOR = Corridor(h_min=128, h_max=512, step_s=0.0625, merge_s=8.0, horizon_s=100.0)
DEPLOYABLE = [name for name in policy_names() if load_policy(name).deployable]


class Peeking(Policy):
    """Reaches through the counts of completed seconds for those to come."""

    name: ClassVar[str] = "peeking"

    def decide(self, observation):
        every = observation.counts_per_s.base
        now = int(observation.now_s)
        return Decision(merge=bool(every[now : now + 8].sum() < 8))


def recorded(policy, trace):
    """Run ``policy``; return (now, inner steps, decision) of every call, and the rows."""
    decide, calls = policy.decide, []

    def record(observation):
        decision = decide(observation)
        calls.append((observation.now_s, observation.step, decision))
        return decision

    policy.decide = record
    rows, _ = decide_schedule(policy, CORRIDOR, trace)
    return calls, rows


def steps_done(rows, t_s):
    """Inner steps that the learners of a schedule have done at ``t_s``."""
    start_s = rows["start_s"].to_numpy()
    in_merges = np.clip(t_s - start_s, 0, CORRIDOR.merge_s).sum()
    return int((t_s - in_merges) / CORRIDOR.step_s)


def same_past(policy, trace, other, cut_s):
    """Whether all decisions up to and including ``cut_s`` stay when the rest is replaced."""
    calls, rows = recorded(policy(), trace)
    changed, _ = recorded(policy(), trace.replaced_after(cut_s, steps_done(rows, cut_s), other))
    past = [call for call in calls if call[0] <= cut_s]
    return past == [call for call in changed if call[0] <= cut_s]


@pytest.mark.parametrize("name", DEPLOYABLE)
@settings(max_examples=20, deadline=None)
@given(
    cut_s=st.one_of(st.floats(8, 99), st.integers(8 * 16, 99 * 16).map(lambda k: k / 16)),
    seed=st.integers(0, 5),
    other=st.integers(6, 9),
)
def test_decisions_up_to_a_cut_do_not_depend_on_what_follows(name, simulated, cut_s, seed, other):
    after = simulated(other, Mmpp2(rates_rps=(0.5, 12.0)))
    assert same_past(load_policy(name), simulated(seed), after, cut_s)


def test_a_policy_that_peeks_is_caught(simulated):
    after = simulated(6, Mmpp2(rates_rps=(0.5, 12.0)))
    cuts = np.arange(10, 90, 4.0)
    assert not all(same_past(Peeking, simulated(1), after, cut) for cut in cuts)


def test_the_replacement_does_change_what_follows(simulated):
    policy = load_policy("wa_diloco")
    after = simulated(6, Mmpp2(rates_rps=(0.5, 12.0)))
    calls, rows = recorded(policy(), simulated(1))
    changed, _ = recorded(policy(), simulated(1).replaced_after(10.0, steps_done(rows, 10), after))
    assert calls != changed


@settings(max_examples=60, deadline=None)
@given(
    cut=st.integers(128, 1_500),
    before=st.integers(0, 120),
    gap=st.integers(1, 512),
    other=st.integers(6, 9),
)
def test_observations_up_to_a_cut_are_the_same_to_the_last_bit(simulated, cut, before, gap, other):
    step = cut - before
    gap = min(gap, step)
    cut_s = cut * CORRIDOR.step_s
    trace = simulated(2)
    spliced = trace.replaced_after(cut_s, cut, simulated(other))
    one, two = (t.observe(CORRIDOR, step - gap, gap, 0) for t in (trace, spliced))
    for field in one.__slots__:
        np.testing.assert_array_equal(getattr(one, field), getattr(two, field))
