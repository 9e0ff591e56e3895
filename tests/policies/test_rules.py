"""The simple rules by hand: tokens, load, pressure, votes."""

import numpy as np
import pytest
from pydantic import ValidationError

from safesync.placement import Corridor
from safesync.policies import Signals, load_policy
from safesync.policies.base import Block
from safesync.policies.load import policy_names
from safesync.policies.replay import decide_schedule

CORRIDOR = Corridor(128, 512, 0.0625, 8.0, 100.0)


def begun(name, corridor=CORRIDOR, islands=2, **parameters):
    policy = load_policy(name)
    policy = policy(policy.Parameters(**parameters))
    policy.begin(Block(corridor, islands, np.random.default_rng(0)))
    return policy


# --- what the page says of them


@pytest.mark.parametrize("name", [name for name in policy_names() if name != "nosync"])
def test_every_policy_says_in_a_short_sentence_what_it_does(name):
    said = load_policy(name).summary()
    assert 20 < len(said) < 110
    assert not set(said) & set("`\n")


def test_the_summary_is_the_first_sentence_of_its_own_docstring():
    class Quiet(load_policy("fixed_h")):
        pass

    class Told(load_policy("fixed_h")):
        """Merge at ``h`` and\n        no sooner. Source: none."""

    assert (Quiet.summary(), Told.summary()) == ("", "Merge at h and no sooner")


# --- adaptive_tokens


@pytest.mark.parametrize(("target", "gap"), [(2_048 * 200, 201), (2_048 * 200 - 1, 200)])
def test_tokens_must_exceed_the_target(corridor, flat, target, gap):
    rows, _ = decide_schedule(begun("adaptive_tokens", target_tokens=target), corridor, flat())
    assert set(np.diff(rows["step"], prepend=0)) == {gap}


def test_tokens_are_the_mean_of_the_islands(seen):
    policy = begun("adaptive_tokens", target_tokens=1_000_000)
    decision = policy.decide(seen(tokens=np.array([500_000, 2_000_000])))
    assert decision.merge
    assert decision.score == pytest.approx(0.25)
    assert not policy.decide(seen(tokens=np.array([0, 2_000_000]))).merge


# --- adaptive_load


def test_load_is_compared_with_its_own_past(seen):
    policy = begun("adaptive_load", load_s=2, past_s=4, quantile=0.25)
    # the past holds five seconds: 9 | 4 2 0 6 2 -> loads 3, 1, 3, 4; their lower quartile is 2.5
    decision = policy.decide(seen(counts_per_s=np.array([9, 4, 2, 0, 6, 2])))
    assert decision.score == pytest.approx(2.5 - 4)
    assert not decision.merge
    # loads 1, 3, 4, 1: the quartile is 1
    assert policy.decide(seen(counts_per_s=np.array([2, 0, 6, 2, 0]))).score == 0
    assert policy.decide(seen(counts_per_s=np.array([2, 0, 6, 2, 0]))).merge


def test_load_follows_a_drift(seen):
    policy = begun("adaptive_load", past_s=10)
    risen = np.array([0] * 30 + [5, 7] * 5 + [4, 4])
    assert policy.decide(seen(counts_per_s=risen)).merge
    assert not begun("adaptive_load", past_s=60).decide(seen(counts_per_s=risen)).merge


@pytest.mark.parametrize("seconds", [0, 1])
def test_without_a_load_it_waits(seen, seconds):
    decision = begun("adaptive_load").decide(seen(counts_per_s=np.zeros(seconds, dtype=int)))
    assert (decision.merge, decision.score) == (False, None)


# --- pressure_gate


@pytest.mark.parametrize(
    ("threshold", "signals", "merge"),
    [
        (0.6, (0.1, 0.6, 0.2), True),
        (0.6, (0.1, 0.61, 0.2), False),
        (0.6, (0.61, 0.1, 0.2), False),
        (0.6, (0.1, 0.1, 0.61), False),
        (0.45, (0.1, 0.5, 0.2), False),
    ],
)
def test_the_gate_takes_the_largest_pressure(corridor, seen, threshold, signals, merge):
    gate = begun("pressure_gate", corridor, threshold=threshold)
    decision = gate.decide(seen(gap=256, signals=Signals(*signals)))
    assert decision.merge is merge
    assert decision.score == pytest.approx(threshold - max(signals))
    assert not gate.decide(seen(gap=255, signals=Signals(*signals))).merge


@pytest.mark.parametrize(("pressure", "gap"), [(0.5, 256), (0.7, 512)])
def test_the_gate_defers_a_due_merge(corridor, flat, pressure, gap):
    gate = begun("pressure_gate", corridor)
    rows, facts = decide_schedule(gate, corridor, flat(pressures=(0.0, pressure, 0.0)))
    assert set(np.diff(rows["step"], prepend=0)) == {gap}
    assert facts["forced_share"] == (gap == 512)


def test_published_threshold_and_its_matched_variant_are_one_parameter():
    parameters = load_policy("pressure_gate").Parameters
    assert parameters().threshold == 0.60
    assert parameters(threshold=0.45).threshold == 0.45
    with pytest.raises(ValidationError, match="threshold"):
        parameters(threshold=1.1)


@pytest.mark.parametrize("h", [127, 513])
def test_a_period_outside_the_corridor_is_refused(corridor, h):
    with pytest.raises(ValueError, match=rf"h = {h} lies outside the corridor 128\.\.512"):
        begun("pressure_gate", corridor, h=h)


# --- random_deferral


def test_eight_votes_degenerate_to_h_max_and_the_schedule_says_so(corridor, flat):
    rows, facts = decide_schedule(begun("random_deferral", corridor), corridor, flat(islands=8))
    assert np.diff(rows["step"], prepend=0).tolist() == [512, 512]
    assert facts["forced_share"] == 1
    assert facts["warnings"][0].startswith("random_deferral is the published study's degenerate")
    assert any("were forced at h_max" in warning for warning in facts["warnings"])


def test_one_vote_alone_has_the_mean_gap_aimed_at(flat):
    wide = Corridor(10, 2_000, 0.0625, 1.0, 2_500.0)
    policy = begun("random_deferral", wide, islands=1, h=50)
    rows, _ = decide_schedule(policy, wide, flat(steps=40_000, seconds=2_500.0, islands=1))
    gaps = np.diff(rows["step"], prepend=0)
    assert len(gaps) > 500
    # geometric from 10 on: mean 50, standard deviation 40.5
    assert abs(gaps.mean() - 50) < 4 * 40.5 / np.sqrt(len(gaps))


def test_a_mean_gap_below_the_corridor_is_refused(corridor):
    with pytest.raises(ValueError, match="h = 100 lies below h_min = 128"):
        begun("random_deferral", corridor, h=100)


def test_other_policies_carry_no_caution(corridor, flat):
    fixed_h = load_policy("fixed_h")
    assert decide_schedule(fixed_h(), corridor, flat())[1]["warnings"] == []
