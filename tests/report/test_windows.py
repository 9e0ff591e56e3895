from dataclasses import replace

import pandas as pd
import pytest

from safesync.report.figures.base import Colours
from safesync.report.figures.windows import window_rows, windows_figure
from safesync.report.replay import Replay


def requests_of(latencies):
    at = [float(k) for k in range(len(latencies))]
    done = [a + latency for a, latency in zip(at, latencies, strict=True)]
    return pd.DataFrame(
        {"request_id": range(len(at)), "arrival_s": at, "done_s": done, "status": "ok"}
    )


def replay(policy, latencies, starts):
    merges = pd.DataFrame({"planned_s": starts}, dtype=float)
    return Replay("vllm", "r", 1, "judge", policy, 0, len(starts), requests_of(latencies), merges)


def test_exposure_comes_from_the_capture_and_violations_from_the_replay():
    quiet = replay("nosync", [1.5] * 6, [])
    hurt = replay("wa", [1.5, 9.0, 9.0, 1.5, 1.5, 9.0], [2.0])
    rows = window_rows([hurt], {1: quiet}, metric="e2e", threshold_s=2.0, merge_s=2.0)
    # the window [2, 4) meets request 1 (in flight until 2.5), 2 and 3; request 5 is not its doing
    assert rows["met"].tolist() == [3]
    assert rows["violated"].tolist() == [pytest.approx(2 / 3)]


def test_request_order_does_not_matter():
    quiet = replay("nosync", [1.5] * 6, [])
    hurt = replay("wa", [1.5, 9.0, 9.0, 1.5, 1.5, 9.0], [2.0])
    hurt.requests.sort_values("request_id", ascending=False, inplace=True)
    rows = window_rows([hurt], {1: quiet}, metric="e2e", threshold_s=2.0, merge_s=2.0)
    assert rows["violated"].tolist() == [pytest.approx(2 / 3)]


def test_a_window_that_meets_nobody_has_no_share_and_is_told():
    quiet = replay("nosync", [0.1] * 3, [])
    facts = {"metric": "e2e", "threshold_s": 2.0, "merge_s": 2.0}
    some = replay("wa", [0.1] * 3, [0.0, 50.0])
    rows = window_rows([some], {1: quiet}, **facts)
    assert rows["met"].tolist() == [2, 0]
    assert rows["violated"].isna().tolist() == [False, True]
    figure = windows_figure([some], {1: quiet}, ["wa"], Colours(["wa"]), **facts)
    assert "(1 in all)" in figure.caption
    assert figure.notes == ["1 window met no request and is not drawn."]
    none = replay("wa", [0.1] * 3, [50.0])
    assert windows_figure([none], {1: quiet}, ["wa"], Colours(["wa"]), **facts) is None


def test_windows_of_a_block_without_a_capture_are_told():
    quiet = replay("nosync", [0.1] * 3, [])
    facts = {"metric": "e2e", "threshold_s": 2.0, "merge_s": 2.0}
    apart = replace(replay("wa", [0.1] * 3, [0.0, 1.0]), seed=2)
    both = [replay("wa", [0.1] * 3, [0.0]), apart]
    figure = windows_figure(both, {1: quiet}, ["wa"], Colours(["wa"]), **facts)
    assert figure.notes == ["2 windows of blocks without a capture are not drawn."]


def test_probes_are_named_as_calibration_and_one_merge_is_one_merge():
    probe = replace(replay("probe", [0.1], [0.0]), role="calibration", seed=11)
    assert probe.group == "probe (calibration seed 11)"
    assert replay("matched_random", [0.1], [0.0]).group == "matched_random (1 merge)"
    assert replay("matched_random", [0.1], [0.0, 4.0]).group == "matched_random (2 merges)"
