import pandas as pd
import pytest

from safesync.report.figures.windows import window_rows
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


def test_a_window_that_meets_nobody_has_no_share():
    quiet = replay("nosync", [0.1] * 3, [])
    rows = window_rows(
        [replay("wa", [0.1] * 3, [50.0])], {1: quiet}, metric="e2e", threshold_s=2.0, merge_s=2.0
    )
    assert rows.empty
