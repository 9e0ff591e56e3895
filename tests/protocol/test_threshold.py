import pandas as pd
import pytest

from safesync.protocol.threshold import auto_threshold, fixed_threshold


def capture(latencies, failed=0):
    rows = pd.DataFrame({"arrival_s": 0.0, "done_s": latencies, "status": "ok"})
    rows.loc[: failed - 1, "status"] = "error"
    return rows


def test_is_the_multiple_of_the_pooled_quantile():
    document = auto_threshold(
        "bursty",
        "e2e",
        {
            12: capture([0.1 * k for k in range(51, 101)]),
            11: capture([0.1 * k for k in range(1, 51)]),
        },
        quantile=0.99,
        multiple=1.25,
    )
    assert document["quantile_s"] == pytest.approx(9.9)
    assert document["threshold_s"] == pytest.approx(1.25 * 9.9)
    assert document["seeds"] == [11, 12]
    assert document["requests"] == 100


def test_failures_count_as_infinite():
    assert (
        auto_threshold("r", "e2e", {1: capture([1.0] * 100, failed=1)}, quantile=0.99, multiple=2)[
            "threshold_s"
        ]
        == 2.0
    )
    with pytest.raises(ValueError, match="2 of 100 requests failed"):
        auto_threshold("r", "e2e", {1: capture([1.0] * 100, failed=2)}, quantile=0.99, multiple=2)


def test_needs_requests():
    with pytest.raises(ValueError, match="no request"):
        auto_threshold("r", "e2e", {}, quantile=0.99, multiple=2)


def test_fixed_threshold_names_its_source():
    assert fixed_threshold("r", "ttft", 0.5)["source"] == "config"
