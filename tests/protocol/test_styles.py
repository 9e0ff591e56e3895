"""What a valid window is, by the style of its merges."""

import pandas as pd
import pytest

from safesync.protocol.scores import score
from safesync.protocol.validity import merge_errors_s, window_ends_s
from safesync.tables.arrivals import arrivals_sha256


def manifest(style, **changes):
    return {"config": {"merge": {"style": style}}, "horizon_s": 60.0} | changes


def merges(ends_s):
    starts_s = [10.0, 30.0]
    return pd.DataFrame({"planned_s": starts_s, "start_s": starts_s, "end_s": ends_s})


def test_a_window_lasts_merge_s_or_until_the_next_one_begins():
    starts_s = [10.0, 30.0]
    assert window_ends_s(starts_s, 8.0, {}).tolist() == [18.0, 38.0]
    assert window_ends_s(starts_s, 8.0, manifest("blocking")).tolist() == [18.0, 38.0]
    assert window_ends_s(starts_s, 8.0, manifest("throttled")).tolist() == [18.0, 38.0]
    assert window_ends_s(starts_s, 8.0, manifest("overlapped")).tolist() == [30.0, 60.0]
    assert window_ends_s([], 8.0, manifest("overlapped")).tolist() == []


@pytest.mark.parametrize(
    ("style", "ends_s", "error_s"),
    [
        ("blocking", [18.1, 38.0], 0.1),
        ("throttled", [18.0, 37.8], 0.2),
        ("throttled", [30.0, 60.0], 22.0),
        ("overlapped", [30.2, 60.0], 0.2),
        ("overlapped", [18.0, 38.0], 22.0),
    ],
)
def test_an_end_off_the_plan_of_its_style_is_an_error(style, ends_s, error_s):
    errors = merge_errors_s(merges(ends_s), 8.0, manifest(style))
    assert errors == {"started": 0.0, "ended": pytest.approx(error_s)}


def test_the_score_counts_the_seconds_and_the_requests_of_overlapped_windows():
    requests = pd.DataFrame(
        {
            "request_id": range(4),
            "arrival_s": [5.0, 12.0, 25.0, 50.0],
            "prompt_tokens": 4,
            "output_tokens": 3,
            "status": "ok",
        }
    )
    for name, after_s in (("sent_s", 0.0), ("first_token_s", 0.1), ("last_token_s", 0.2)):
        requests[name] = requests["arrival_s"] + after_s
    requests["done_s"] = requests["last_token_s"]
    arrivals = requests[["request_id", "arrival_s", "prompt_tokens", "output_tokens"]]

    def scored(style, ends_s):
        identity = {"run": "r", "regime": "a", "kind": "bursty", "seed": 1, "role": "judge"}
        return score(
            requests,
            merges(ends_s),
            pd.DataFrame({"start_s": [10.0, 30.0]}),
            arrivals,
            requests,
            slo_metric="e2e",
            threshold_s=1.0,
            merge_s=8.0,
            feasible=True,
            identity=identity | {"tier": "vllm", "policy": "p", "draw": 0, "budget": 2},
            manifest=manifest(style, fingerprint="f", arrivals_sha256=arrivals_sha256(arrivals)),
        )

    row = scored("overlapped", [30.0, 60.0])
    assert (row["merge_seconds"], row["planned_merge_seconds"]) == (50.0, 50.0)
    assert row["overlap"] == 3
    row = scored("throttled", [18.0, 38.0])
    assert (row["merge_seconds"], row["planned_merge_seconds"]) == (16.0, 16.0)
    assert row["overlap"] == 1
