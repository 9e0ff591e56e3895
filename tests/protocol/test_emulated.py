"""Emulated rows say what the score of the replay's own tables would say."""

import numpy as np
import pandas as pd
import pytest
from protocol.emulator_model import CORRIDOR, TRUTH, arrivals, calibrated, merges, replay

from safesync.emulator import Windows
from safesync.policies.controls import matched_random
from safesync.policies.observe import observe_block
from safesync.protocol import emulated
from safesync.protocol.emulated import (
    emulated_capture,
    emulated_rows,
    merge_windows,
    placements,
    shared_placements,
)
from safesync.protocol.scores import score
from safesync.tables.scores import SCORES

STARTS_S = np.array([8.0, 20.0, 33.0, 46.0])
IDENTITY = {
    "run": "r",
    "regime": "bursty",
    "kind": "bursty",
    "seed": 1,
    "role": "judge",
    "capture": "emulator",
}


@pytest.fixture(scope="module")
def model():
    return calibrated()


@pytest.fixture(scope="module")
def trace():
    return arrivals()


def block(draws, starts_s=STARTS_S):
    """Return every schedule of a block with one policy."""
    shared = shared_placements(CORRIDOR, draws, "bursty", 1)
    return [*shared, *placements("wa", starts_s, CORRIDOR, draws, "bursty", 1)]


def rows_of(trace, model, metric="e2e", threshold_s=1.2, draws=30, starts_s=STARTS_S):
    capture, _ = emulated_capture(trace, model, 60.0)
    return emulated_rows(
        block(draws, starts_s),
        trace,
        capture,
        model,
        CORRIDOR,
        slo_metric=metric,
        threshold_s=threshold_s,
        identity=IDENTITY,
    )


def scored(trace, starts_s, metric, threshold_s):
    """Return the row that the tables of the same replay are scored with."""
    windows = merges(*starts_s)
    return score(
        replay(trace, Windows.measured(windows) if len(windows) else None),
        windows,
        pd.DataFrame({"start_s": starts_s}),
        trace,
        replay(trace),
        slo_metric=metric,
        threshold_s=threshold_s,
        merge_s=4.0,
        feasible=True,
        identity={
            **IDENTITY,
            "tier": "emulator",
            "policy": "p",
            "draw": 0,
            "budget": len(starts_s),
        },
        manifest={"fingerprint": "machine-1"},
    )


@pytest.mark.parametrize(("metric", "threshold_s"), [("e2e", 1.2), ("ttft", 0.08), ("tpot", 0.04)])
def test_rows_are_those_of_the_scored_tables(trace, model, metric, threshold_s):
    rows = rows_of(trace, model, metric, threshold_s)
    named = ("policy", "control_of", "capture", "invalid_reason")
    columns = [name for name in SCORES.schema.names if name not in named]
    own = rows[rows["policy"] == "wa"].iloc[0]
    expected = scored(trace, STARTS_S, metric, threshold_s)
    assert 0 < own["violations"] < len(trace)
    for name in columns:
        assert own[name] == pytest.approx(expected[name], nan_ok=True), name
    nosync = rows[rows["policy"] == "nosync"].iloc[0]
    assert nosync["excess_rate"] == 0
    for name in ("violations", "e2e_p99_s", "tpot_p50_s", "overlap", "merge_seconds"):
        assert nosync[name] == pytest.approx(scored(trace, [], metric, threshold_s)[name]), name


def test_every_draw_is_a_replay_of_its_own(trace, model):
    rows = rows_of(trace, model)
    assert rows["policy"].value_counts().to_dict() == {
        "nosync": 1,
        "wa": 1,
        "matched_random": 5 * 30,
        "matched_spacing": 30,
    }
    for group in block(30)[1:]:
        budget = group.gaps.shape[1]
        mine = rows[(rows["policy"] == group.policy) & (rows["budget"] == budget)]
        mine = mine.sort_values("draw")
        starts = CORRIDOR.starts(group.gaps)
        for draw in {0, len(group.gaps) - 1}:
            expected = scored(trace, starts[draw], "e2e", 1.2)
            found = mine.iloc[draw]
            for name in ("violations", "overlap", "e2e_p95_s", "excess_rate"):
                assert found[name] == pytest.approx(expected[name]), (group.policy, draw, name)


def test_what_policies_share_depends_on_none_of_them():
    shared = shared_placements(CORRIDOR, 5, "bursty", 1)
    assert [group.policy for group in shared] == ["nosync", *["matched_random"] * 5]
    assert [group.gaps.shape for group in shared] == [(1, 0), *((5, n) for n in range(3, 8))]
    for group in shared[1:]:
        measured = matched_random(CORRIDOR, group.gaps.shape[1], 2, "bursty", 1)
        starts_s = CORRIDOR.starts(group.gaps)[:2]
        assert starts_s.ravel().tolist() == measured["start_s"].tolist()


def test_more_draws_change_no_earlier_one_and_chunks_nothing(trace, model, monkeypatch):
    few = rows_of(trace, model, draws=5)
    monkeypatch.setattr(emulated, "_CHUNK_VALUES", 3 * len(trace))
    many = rows_of(trace, model, draws=11)
    pd.testing.assert_frame_equal(
        few.reset_index(drop=True), many[many["draw"] < 5].reset_index(drop=True)
    )


def test_spacing_rows_name_their_policy_and_random_ones_do_not(trace, model, tmp_path):
    rows = rows_of(trace, model, draws=3)
    assert set(rows[rows["policy"] == "matched_spacing"]["control_of"]) == {"wa"}
    assert rows[rows["policy"] != "matched_spacing"]["control_of"].isna().all()
    SCORES.write(tmp_path / "rows.parquet", rows)
    back = SCORES.read(tmp_path / "rows.parquet")
    assert set(back["capture"]) == {"emulator"}
    assert back["violations"].tolist() == rows["violations"].tolist()


def test_a_policy_outside_the_corridor_is_marked(trace, model):
    off = CORRIDOR.gaps_from_starts(np.array([1.0, 20.0, 33.0, 46.0]))
    group = emulated.Placement("wa", off[None, :])
    capture, _ = emulated_capture(trace, model, 60.0)
    rows = emulated_rows(
        [group],
        trace,
        capture,
        model,
        CORRIDOR,
        slo_metric="e2e",
        threshold_s=1.0,
        identity=IDENTITY,
    )
    assert not rows["feasible"].any()


def test_the_emulated_capture_shows_the_queue_of_its_own_replay(trace, model):
    requests, telemetry = emulated_capture(trace, model, 60.0)
    assert requests["done_s"].tolist() == replay(trace)["done_s"].tolist()
    at = int(telemetry["running"].argmax())
    at_s = telemetry["t_s"].iloc[at]
    flying = (requests["arrival_s"] <= at_s) & (requests["done_s"] > at_s)
    assert flying.sum() > 2
    assert telemetry["running"].iloc[at] == flying.sum()
    assert (telemetry["waiting"] == 0).all()
    crowd = arrivals(rate_rps=40.0)
    _, crowded = emulated_capture(crowd, model, 60.0)
    assert crowded["running"].max() == TRUTH.limits.max_num_seqs
    assert crowded["waiting"].max() > 0
    seen = observe_block(
        requests,
        telemetry,
        pd.DataFrame({"island": 0, "step": range(1, 481), "loss": 1.0, "tokens": 1}),
        network_reference_bytes_per_s=2000.0,
        disk_reference_bytes_per_s=2000.0,
        serving_reference=8.0,
    )
    assert seen.pressures[0] == pytest.approx(0.5, abs=0.01)
    assert seen.pressures[2] == pytest.approx(0.25, abs=0.01)
    assert seen.observe(CORRIDOR, 0, 400, 0).now_s == 50.0


def test_windows_of_a_block_share_their_luck(trace, model):
    lucky = TRUTH.model_copy(
        update={"contention": (TRUTH.contention[0].model_copy(update={"spread": 0.4}),)}
    )
    varied = rows_of(trace, model.model_copy(update={"model": lucky}), draws=5)
    even = rows_of(trace, model, draws=5)
    same = varied["violations"] == even["violations"]
    assert same[even["policy"] == "nosync"].all()
    assert not same[even["policy"] == "wa"].any()
    windows = [
        merge_windows(starts_s, 4.0, lucky, ("bursty", seed))
        for starts_s, seed in ((STARTS_S, 1), (STARTS_S + 5.0, 1), (STARTS_S, 2))
    ]
    assert windows[0].stretch.tolist() == windows[1].stretch.tolist()
    assert windows[0].stretch.tolist() != windows[2].stretch.tolist()
