"""Every gate at its boundary, from both sides."""

import math

import numpy as np
import pandas as pd
import pytest
from protocol.planted import row

from safesync.protocol import gates
from safesync.protocol.blocks import check_unique, collect


def blocks_of(*rows, policy="wa"):
    return collect(pd.DataFrame(rows), "vllm", "bursty", policy)


def block(*, policy=None, draw=None, nosync=None):
    """Return one block with changed columns of the policy, of draw 1 or of the capture."""
    return blocks_of(
        row("nosync", 1, 0.0, budget=0, **(nosync or {})),
        row("wa", 1, 0.1, **(policy or {})),
        row("matched_random", 1, 0.1, draw=0),
        row("matched_random", 1, 0.1, draw=1, **(draw or {})),
    )


def valid(blocks):
    return gates.measurement_valid(blocks, lateness_limit_s=0.04, loop_lag_limit_s=0.1)


@pytest.mark.parametrize("who", ["policy", "draw", "nosync"])
@pytest.mark.parametrize(("column", "limit"), [("lateness_p99_s", 0.04), ("loop_lag_p99_s", 0.1)])
def test_measurement_at_and_above_its_limit(who, column, limit):
    assert valid(block(**{who: {column: limit}})).passed is True
    failed = valid(block(**{who: {column: limit + 1e-6}}))
    assert failed.passed is False
    assert failed.refuses
    assert failed.limit == limit


def test_measurement_marked_invalid_gives_its_reason():
    gate = valid(block(draw={"valid": False, "invalid_reason": "a merge ended 0.4 s off plan"}))
    assert gate.passed is False
    assert "matched_random draw 1, seed 1: a merge ended 0.4 s off plan" in gate.sentence


def test_measurement_with_infinite_lateness_has_no_finite_figure():
    gate = valid(block(policy={"lateness_p99_s": math.inf}))
    assert (gate.passed, gate.figure) == (False, None)
    assert "never sent" in gate.sentence


def test_measurement_without_the_figure_is_open():
    assert valid(block(policy={"loop_lag_p99_s": np.nan})).passed is None


def test_computed_tiers_have_no_client():
    frame = pd.DataFrame([row("wa", 1, 0.1, tier="emulator", loop_lag_p99_s=np.nan)])
    assert valid(collect(frame, "emulator", "bursty", "wa")).passed is True


def fingerprint(*rows):
    return gates.same_fingerprint(blocks_of(*rows), noise=0.01)


def test_one_fingerprint_passes_and_two_without_anchor_fail():
    rows = [row("nosync", 1, 0.02, budget=0), row("wa", 1, 0.1), row("matched_random", 1, 0.1)]
    assert fingerprint(*rows).passed is True
    rows[1]["fingerprint"] = "machine-2"
    assert fingerprint(*rows).passed is False


@pytest.mark.parametrize(("rate", "passed"), [(0.03, True), (0.0301, False)])
def test_anchors_agree_up_to_the_noise(rate, passed):
    gate = fingerprint(
        row("nosync", 1, 0.02, budget=0),
        row("nosync", 1, rate, budget=0, draw=1, fingerprint="machine-2"),
        row("wa", 1, 0.1, fingerprint="machine-2"),
        row("matched_random", 1, 0.1),
    )
    assert gate.passed is passed
    assert gate.figure == pytest.approx(rate - 0.02)


@pytest.mark.parametrize(
    "change",
    [
        {"arrivals_sha256": "another"},
        {"requests": 999},
        {"sent": 999},
        {"offered_prompt_tokens": 63_999},
    ],
)
def test_load_must_be_that_of_the_capture(change):
    assert gates.load_match(block()).passed is True
    for who in ("policy", "draw"):
        gate = gates.load_match(block(**{who: change}))
        assert (gate.passed, gate.figure, gate.limit) == (False, 1, 0)
        assert gate.refuses
    # a capture that differs from all is one that no replay carried
    assert gates.load_match(block(nosync=change)).figure == 3


def test_lost_requests_are_an_outcome_not_another_load():
    assert gates.load_match(block(policy={"ok": 400, "failed": 600})).passed is True


def test_load_without_a_capture_is_open():
    assert gates.load_match(blocks_of(row("wa", 1, 0.1))).passed is None


def budget(blocks):
    return gates.budget_match(blocks, tolerance=0.05)


@pytest.mark.parametrize(("seconds", "passed"), [(32 * 1.05, True), (32 * 1.0501, False)])
@pytest.mark.parametrize("sign", [1, -1])
def test_actual_merge_seconds_within_tolerance(seconds, passed, sign):
    gate = budget(block(policy={"merge_seconds": 32 + sign * (seconds - 32)}))
    assert gate.passed is passed
    assert gate.figure == pytest.approx(seconds / 32 - 1)


def test_budget_of_the_control_must_be_the_policys():
    gate = budget(blocks_of(row("wa", 1, 0.1, budget=3), row("matched_random", 1, 0.1, budget=4)))
    assert gate.passed is False
    assert "made 3 merges, its control 4" in gate.sentence


def test_budget_without_any_control_is_open():
    assert budget(blocks_of(row("wa", 1, 0.1))).passed is None


def test_budget_outside_the_corridor_or_of_other_length_fails():
    assert budget(block(draw={"feasible": False})).passed is False
    assert budget(block(draw={"planned_merge_seconds": 33.0})).passed is False
    assert budget(block()).passed is True


def test_planned_merge_seconds_are_equal_but_for_rounding():
    assert budget(block(draw={"planned_merge_seconds": 32 + 5e-7})).passed is True
    assert budget(block(draw={"planned_merge_seconds": 32 + 2e-6})).passed is False
    assert budget(block(draw={"planned_merge_seconds": 32 - 2e-6})).passed is False


def test_a_control_that_never_merged_is_no_control_of_a_policy_that_did():
    idle = {"merge_seconds": 0.0}
    blocks = blocks_of(row("wa", 1, 0.1), row("matched_random", 1, 0.1, **idle))
    gate = budget(blocks)
    assert (gate.passed, gate.figure) == (False, None)
    both = blocks_of(row("wa", 1, 0.1, **idle), row("matched_random", 1, 0.1, **idle))
    assert (budget(both).passed, budget(both).figure) == (True, 0.0)


def test_one_more_merge_than_the_control_is_another_budget_and_as_many_is_not():
    for merges, passed in ((3, False), (4, True), (5, False)):
        blocks = blocks_of(
            row("wa", 1, 0.1, budget=merges), row("matched_random", 1, 0.1, budget=4)
        )
        assert budget(blocks).passed is passed


def test_what_was_not_recorded_passes_no_gate():
    assert budget(block(draw={"merge_seconds": np.nan})).passed is None
    assert budget(block(policy={"merge_seconds": np.nan})).passed is None
    unknown = gates.same_fingerprint(block(draw={"fingerprint": None}), noise=0.01)
    assert (unknown.passed, unknown.sentence) == (None, "Block 1: the machine was not recorded.")


def test_resolution_needs_blocks_and_smallest_p():
    assert gates.resolution(5, 0.05, level=0.05, min_blocks=5).passed is True
    assert gates.resolution(5, 0.0501, level=0.05, min_blocks=5).passed is False
    assert gates.resolution(4, 0.05, level=0.05, min_blocks=5).passed is False
    assert not gates.resolution(4, 0.05, level=0.05, min_blocks=5).refuses


def test_envelope_and_gain_at_their_limits():
    assert gates.envelope(0.05, alpha=0.05).passed is True
    assert gates.envelope(0.0501, alpha=0.05).passed is False
    assert gates.minimum_gain(0.01, min_gain=0.01).passed is True
    assert gates.minimum_gain(0.0099, min_gain=0.01).passed is False


def test_spacing_and_exact_budget_at_their_limits():
    for p, passed in ((0.05, True), (0.0501, False)):
        gate = gates.matched_spacing(p, 0.02, smallest_p=0.03, alpha=0.05)
        assert (gate.passed, gate.figure, gate.limit, gate.refuses) == (passed, p, 0.05, False)
    assert gates.exact_budget(3).passed is True


@pytest.mark.parametrize("smallest_p", [0.05 / 3, 1 / 60])
def test_a_level_that_rounds_is_still_attained(smallest_p):
    assert gates.resolution(5, smallest_p, level=0.05 / 3, min_blocks=5).passed is True
    assert gates.resolution(5, smallest_p * 1.001, level=0.05 / 3, min_blocks=5).passed is False


def test_later_gates_are_open_and_spacing_belongs_to_computed_tiers():
    everywhere = {"causality", "training parity"}
    replayed = everywhere | {"effect-size transfer"}
    for tier, expected in (
        ("vllm", replayed),
        ("emulator", replayed | {"matched spacing"}),
        ("overlap", everywhere | {"matched spacing"}),
    ):
        later = gates.later_gates(tier)
        assert {gate.name for gate in later if gate.applies} == expected
        assert {gate.name for gate in later} >= expected | {"matched spacing"}
        assert all(gate.passed is None for gate in later)
    said = {gate.name: gate.sentence for gate in gates.later_gates("vllm")}["matched spacing"]
    assert said.startswith("Not applicable: ")
    assert "controls.spacing" in said


def test_scope_covers_what_it_does_not_exclude():
    assert gates.Scope().covers("vllm", "bursty", "wa")
    assert gates.Scope(policy="wa").covers("vllm", "bursty", "wa")
    assert not gates.Scope(tier="emulator").covers("vllm", "bursty", "wa")


def test_a_replay_that_stands_twice_is_refused():
    with pytest.raises(ValueError, match="1 replays twice"):
        check_unique(pd.DataFrame([row("wa", 1, 0.1), row("wa", 1, 0.2)]))
