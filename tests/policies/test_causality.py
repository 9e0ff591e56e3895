"""Deployable policies decide from the past: what comes after a cut changes nothing before it."""

import json
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safesync.placement import Corridor
from safesync.policies import Decision, Policy, load_policy, policy_names
from safesync.policies.causality import audit, mirrored
from safesync.workload.families import Mmpp2

CORRIDOR = Corridor(h_min=128, h_max=512, step_s=0.0625, merge_s=8.0, horizon_s=100.0)
OVERLAPPED = Corridor(128, 512, 0.0625, 8.0, 100.0, blocking=False)
DEPLOYABLE = [
    name for name in policy_names() if load_policy(name).deployable and load_policy(name).merges
]


class Peeking(Policy):
    """Reaches through the counts of completed seconds for those to come."""

    name: ClassVar[str] = "peeking"

    def decide(self, observation):
        every = observation.counts_per_s.base
        now = int(observation.now_s)
        return Decision(merge=bool(every[now : now + 8].sum() < 8))


class PeekingAtThisSecond(Policy):
    """Reads the count of the second that is not completed."""

    name: ClassVar[str] = "peeking_at_this_second"

    def decide(self, observation):
        score = float(observation.counts_per_s.base[int(observation.now_s)])
        return Decision(merge=observation.gap >= 256, score=score)


class Remembering(Policy):
    """Keeps all counts that any run has shown it, for the next run."""

    name: ClassVar[str] = "remembering"
    counts: ClassVar[list] = []

    def decide(self, observation):
        if len(observation.counts_per_s) > len(self.counts):
            type(self).counts = observation.counts_per_s.tolist()
        now = int(observation.now_s)
        return Decision(merge=sum(self.counts[now : now + 8]) < 8, reason="remembered")


class Relabelling(Policy):
    """Merges by the gap alone, and lets the future into the reason only."""

    name: ClassVar[str] = "relabelling"

    def decide(self, observation):
        busy = observation.counts_per_s.base[int(observation.now_s) + 1] > 1
        return Decision(merge=observation.gap >= 256, reason="busy" if busy else "quiet")


@pytest.mark.parametrize("name", DEPLOYABLE)
@pytest.mark.parametrize("corridor", [CORRIDOR, OVERLAPPED], ids=["blocking", "overlapped"])
def test_built_in_policies_pass(name, corridor, simulated):
    other = simulated(6, Mmpp2(rates_rps=(0.5, 12.0)))
    found = audit(load_policy(name), corridor, simulated(1), other=other, seed=1, cuts=12)
    assert found.passed, found.sentence
    assert len(found.cuts_s) == 12


@pytest.mark.parametrize("name", ["wa_forecast", "wa_mmpp"])
def test_fifty_cuts_by_default_against_the_mirrored_trace(name, simulated):
    found = audit(load_policy(name), CORRIDOR, simulated(2))
    assert found.passed
    assert len(found.cuts_s) == 50
    assert found.sentence == (
        f"{name}: decisions up to 50 cuts stayed the same when all that follows was replaced."
    )


@pytest.mark.parametrize(
    ("policy", "what"),
    [
        (Peeking, "merge"),
        (PeekingAtThisSecond, "score"),
        (Relabelling, "reason"),
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_policy_that_peeks_is_caught(policy, what, seed, simulated):
    found = audit(policy, CORRIDOR, simulated(seed), seed=seed)
    assert not found.passed
    assert found.difference.cut_s in found.cuts_s
    assert found.difference.now_s <= found.difference.cut_s
    assert found.difference.what == what
    assert found.sentence.startswith(f"{policy.name}: the decision at ")


def test_state_that_outlives_a_policy_is_caught(simulated):
    Remembering.counts = []
    found = audit(Remembering, CORRIDOR, simulated(1))
    assert not found.passed
    assert found.difference.cut_s is None
    assert "ran again on the same trace" in found.sentence


def test_state_that_was_warm_before_the_audit_is_caught(simulated):
    Remembering.counts = []
    audit(Remembering, CORRIDOR, simulated(1))
    Remembering.counts = Remembering.counts[:40]
    assert not audit(Remembering, CORRIDOR, simulated(1)).passed


def test_cuts_are_seeded_and_include_every_merge(simulated):
    first = audit(load_policy("wa_diloco"), CORRIDOR, simulated(1), regime="a", seed=1)
    again = audit(load_policy("wa_diloco"), CORRIDOR, simulated(1), regime="a", seed=1)
    other = audit(load_policy("wa_diloco"), CORRIDOR, simulated(1), regime="a", seed=2)
    assert first.cuts_s == again.cuts_s != other.cuts_s
    assert {228 / 16, 435 / 16 + 8} <= set(first.cuts_s)
    assert list(first.cuts_s) == sorted(first.cuts_s)
    assert first.cuts_s[-1] > 80


def test_the_result_is_a_document(simulated):
    for policy in (Peeking, load_policy("fixed_h")):
        found = audit(policy, CORRIDOR, simulated(1)).document()
        assert json.loads(json.dumps(found)) == found
        assert found["passed"] == (found["difference"] is None)


@pytest.mark.parametrize("name", ["wa_offline", "nosync"])
def test_what_is_not_deployable_or_never_merges_is_refused(name, simulated):
    with pytest.raises(ValueError, match=f"{name}: only a deployable policy that merges"):
        audit(load_policy(name), CORRIDOR, simulated(1))


def test_a_policy_with_a_forecast_error_is_refused(simulated):
    policy = load_policy("wa_forecast")
    with pytest.raises(ValueError, match="wa_forecast: only a deployable policy"):
        audit(lambda: policy(policy.Parameters(forecast_error=1)), CORRIDOR, simulated(1))


def test_the_mirrored_trace_by_hand(flat):
    trace = flat(steps=3, seconds=0.5, pressures=(0.0, 0.25, 1.0))
    trace.tokens[:] = [[1, 3, 7], [2, 4, 6]]
    trace = type(trace)(
        np.array([1.0, 9.0, 11.0]),
        np.array([3.0, 12.0, 12.0]),
        trace.telemetry_s,
        trace.pressures,
        trace.loss,
        trace.tokens,
    )
    back = mirrored(trace, 10.0)
    assert back.arrival_s.tolist() == [9.0, 1.0]
    assert back.done_s.tolist() == [11.0, 4.0]
    assert back.pressures[:, 0].tolist() == [1.0, 0.75, 0.0]
    assert back.tokens.tolist() == [[4, 6, 7], [2, 4, 6]]


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
