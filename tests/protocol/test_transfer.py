"""Gate 2 at its boundaries from both sides, on pairs with a known truth."""

import json

import numpy as np
import pandas as pd
import pytest

from safesync.protocol.transfer import (
    MIN_WINDOWS,
    Effect,
    Effects,
    Pairs,
    effect,
    effects,
    lower_ends,
    paired,
    pool,
    transfer,
    transfer_document,
    transfer_gate,
)

SURE = Effect(p95=1.10, mean=1.10)


def decided(windows=MIN_WINDOWS, low=SURE, observed=None, predicted="same", **changes):
    observed = observed or Effect(1.5, 1.4)
    predicted = observed if predicted == "same" else predicted
    limits = {"delta": 0.10, "tolerance": 0.15} | changes
    return transfer(Effects(windows, low, observed, predicted), **limits)


def test_twenty_windows_are_enough_and_nineteen_are_not():
    assert decided(MIN_WINDOWS).passed is True
    gate = decided(MIN_WINDOWS - 1)
    assert (gate.passed, gate.applies, gate.figure) == (None, True, None)
    assert gate.sentence.startswith("Not computable: 19 merge windows")


@pytest.mark.parametrize("which", ["p95", "mean"])
@pytest.mark.parametrize(("end", "passed"), [(1.10, True), (1.0999, False)])
def test_both_lower_ends_must_reach_the_limit(which, end, passed):
    low = Effect(**{"p95": 1.3, "mean": 1.3, which: end})
    gate = decided(low=low)
    assert gate.passed is passed
    assert gate.figure == end
    assert gate.limit == pytest.approx(1.10)
    assert gate.refuses


@pytest.mark.parametrize("which", ["p95", "mean"])
@pytest.mark.parametrize(("off", "passed"), [(0.15, True), (0.1501, False)])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_model_must_predict_both_effects(which, off, passed, sign):
    observed = Effect(1.6, 1.4)
    values = {"p95": 1.6, "mean": 1.4}
    predicted = Effect(**(values | {which: values[which] * (1 + sign * off)}))
    assert decided(observed=observed, predicted=predicted).passed is passed


def test_without_a_model_the_gate_stays_open_unless_merges_do_not_hurt():
    gate = decided(predicted=None, why_unpredicted="too few requests.")
    assert gate.passed is None
    assert gate.sentence.endswith("is open: too few requests.")
    assert decided(predicted=None, low=Effect(1.0, 1.0)).passed is False


def rows(arrival_s, done_s, status="ok", first=0):
    size = len(arrival_s)
    return pd.DataFrame(
        {
            "request_id": np.arange(first, first + size),
            "arrival_s": np.array(arrival_s, dtype=float),
            "first_token_s": np.array(arrival_s) + 0.1,
            "last_token_s": np.array(done_s, dtype=float),
            "done_s": np.array(done_s, dtype=float),
            "output_tokens": 10,
            "status": status,
        }
    )


def test_exposure_is_decided_by_the_run_without_merges():
    nosync = rows([0.0, 4.0, 9.0, 12.0], [1.0, 5.0, 10.0, 13.0])
    # with merges request 0 drags on into the window: its own slowness must not expose it
    merged = rows([0.0, 4.0, 9.0, 12.0], [6.0, 7.0, 12.0, 13.0])
    pairs = paired(merged, nosync, [(4.5, 9.5)], "e2e")
    assert pairs.with_s.tolist() == [3.0, 3.0]
    assert pairs.without_s.tolist() == [1.0, 1.0]


def test_pairs_go_by_request_id_not_by_place():
    nosync = rows([0.0, 1.0], [0.5, 1.25])
    merged = rows([0.0, 1.0], [1.0, 2.0]).iloc[::-1]
    pairs = paired(merged, nosync, [(0.0, 5.0)], "e2e")
    assert pairs.with_s.tolist() == [1.0, 1.0]
    assert pairs.without_s.tolist() == [0.5, 0.25]


def test_a_request_in_two_windows_counts_once_with_the_first():
    nosync = rows([0.0, 5.0], [10.0, 6.0])
    pairs = paired(nosync, nosync, [(1.0, 2.0), (5.0, 6.0)], "e2e")
    assert pairs.window.tolist() == [0, 1]
    assert pairs.windows == 2


def test_pairs_without_a_latency_on_both_sides_are_left_out_and_counted():
    nosync = rows([0.0, 1.0, 2.0], [1.0, 2.0, 3.0])
    merged = nosync.assign(status=["ok", "timeout", "ok"])
    lost = nosync.assign(status=["ok", "ok", "error"])
    pairs = paired(merged, lost, [(0.0, 5.0)], "e2e")
    assert (pairs.with_s.size, pairs.lost) == (1, 2)


def test_effects_of_known_pairs():
    found = effect(np.array([2.0, 3.0, 8.0]), np.array([1.0, 2.0, 4.0]))
    assert found == Effect(p95=2.0, mean=(2.0 + 1.5 + 2.0) / 3)


def windows_of(slowdowns, per_window=8, predicted=None, seed=0):
    """Return the pairs of one replay whose windows slow all their requests by ``slowdowns``."""
    rng = np.random.default_rng(seed)
    window = np.repeat(np.arange(len(slowdowns)), per_window)
    without_s = rng.uniform(0.5, 1.5, window.size)
    twin = None if predicted is None else without_s * predicted
    return Pairs(
        window,
        without_s * np.asarray(slowdowns)[window],
        without_s,
        twin,
        None if predicted is None else without_s,
        windows=len(slowdowns),
        lost=0,
    )


def test_pooling_keeps_windows_of_different_replays_apart():
    pooled = pool([windows_of([1.5, 2.0], per_window=2), windows_of([3.0], per_window=2)])
    assert pooled.window.tolist() == [0, 0, 1, 1, 2, 2]
    assert pooled.windows == 3
    assert pooled.predicted_s is None


def test_one_slowdown_everywhere_has_no_width():
    low = lower_ends(windows_of([1.4] * 25), level=0.9)
    assert low.mean == pytest.approx(1.4)


def test_windows_are_resampled_not_requests():
    """One window in ten that doubles latency: over windows the mean is far less sure."""
    slow = [2.0, *[1.0] * 9] * 2
    low = lower_ends(windows_of(slow, per_window=200), level=0.9)
    share_of_none = 0.9**20  # resamples without a slow window
    assert 0.05 < share_of_none < 0.2
    assert low.mean == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("slowdown", "predicted", "passed"),
    [(1.5, 1.5, True), (1.5, 1.2, False), (1.5, None, None), (1.05, 1.05, False)],
)
def test_planted_effects(slowdown, predicted, passed):
    replays = [windows_of([slowdown] * 5, predicted=predicted, seed=seed) for seed in range(4)]
    found = effects(replays, level=0.9)
    gate = transfer(found, delta=0.10, tolerance=0.15)
    assert gate.passed is passed
    assert gate.figure == min(found.low.p95, found.low.mean)
    document = transfer_document("bursty", gate, found)
    assert document["effects"]["observed"]["mean"] == pytest.approx(slowdown, rel=0.02)
    assert (document["effects"]["predicted"] is None) == (predicted is None)


def test_no_replay_at_all_is_not_computable():
    nothing = effects([], level=0.9)
    assert nothing.observed is None
    assert transfer(nothing, delta=0.1, tolerance=0.15).passed is None


def test_the_gate_belongs_to_its_regime_on_every_tier():
    gate = decided()
    document = json.loads(json.dumps(transfer_document("bursty", gate, effects([], 0.9))))
    scope, read = transfer_gate(document)
    assert read == gate
    assert scope.covers("vllm", "bursty", "wa")
    assert scope.covers("emulator", "bursty", "wa")
    assert not scope.covers("vllm", "steady", "wa")
