"""The client strips: bins and stretches by hand, and a planted late second in the figure."""

import base64

import numpy as np
import pandas as pd
import pytest

from safesync.protocol.validity import Limits
from safesync.report.figures import client
from safesync.report.figures.client import Series, Stretch, binned, client_figure, stretches
from safesync.report.replay import Replay

LIMITS = Limits(lateness_s=0.04, loop_lag_s=0.1, merge_tolerance_s=0.25)
HORIZON_S = 10.0


def replay(policy="wa", *, late=(), unsent=(), lag=(), seed=23, role="judge", draw=0, horizon=10):
    """Return a replay of 2 requests per second, 4 ms late but for ``late``: second -> seconds."""
    at = np.arange(2 * horizon) / 2
    sent = at + 0.004
    for second, seconds in dict(late).items():
        sent[2 * second] = at[2 * second] + seconds
    sent[list(unsent)] = np.nan
    telemetry = pd.DataFrame({"t_s": np.arange(horizon) + 0.5, "loop_lag_s": 0.01})
    for second, seconds in dict(lag).items():
        telemetry.loc[second, "loop_lag_s"] = seconds
    requests = pd.DataFrame({"request_id": range(len(at)), "arrival_s": at, "sent_s": sent})
    return Replay("vllm", "r", seed, role, policy, draw, 0, requests, pd.DataFrame(), telemetry)


def numbers(packed):
    kind = {"i2": "<i2", "f4": "<f4"}[packed["dtype"]]
    return np.frombuffer(base64.b64decode(packed["bdata"]), kind)


def test_bins_hold_maximum_and_nearest_rank_p99():
    at = np.array([0.0, 0.9, 1.0, 3.999, 4.0, -0.1, 2.5])
    values = np.array([1.0, 3.0, 2.0, np.inf, 9.0, 9.0, np.nan])
    worst, p99 = binned(at, values, 4.0, 1.0)
    expected = [3, 2, np.nan, np.inf]
    np.testing.assert_array_equal(worst, expected)
    np.testing.assert_array_equal(p99, expected)
    worst, p99 = binned(np.full(200, 0.5), np.arange(200.0), 1.0, 1.0)
    assert (worst[0], p99[0]) == (199, 197)


def test_stretches_are_runs_of_bins_strictly_above_the_limit():
    worst = np.array([5, 1, 3, 4, np.nan, 9, 2], float)
    p99 = np.array([5, 1, 3, 4, np.nan, 9, 1.5], float)
    found = stretches(Series("lag", worst, p99, limit_s=2.0), 2.0)
    assert found == [
        Stretch("lag", 0, 2, 5),
        Stretch("lag", 4, 8, 4),
        Stretch("lag", 10, 12, 9),
    ]
    assert stretches(Series("lag", worst, np.full(7, 2.0), limit_s=2.0), 2.0) == []


def test_a_planted_late_stretch_is_shaded_and_named_where_it_is():
    good, bad = replay("nosync"), replay("wa", late={3: 0.05, 4: 0.09}, lag={7: 0.3})
    figure = client_figure([bad, good], ["wa", "nosync"], LIMITS, HORIZON_S)
    (variant,) = figure.variants
    shades = [shape for shape in variant.layout["shapes"] if shape["type"] == "rect"]
    assert [(shade["x0"], shade["x1"], shade["y0"]) for shade in shades] == [(3, 5, 0), (7, 8, 0)]
    labels = [label["text"] for label in variant.layout["annotations"]]
    assert labels == ["nosync", "wa \u00b7 sent late 3\u20135 s, loop lag at 7 s"]
    assert figure.details == [
        "seed 23, wa: sent late 3\u20135 s, worst 90.0 ms",
        "seed 23, wa: loop lag at 7 s, worst 300.0 ms",
    ]
    assert figure.details_title == "2 stretches out of limits"
    assert "worst 90.0 ms" in figure.alt


def test_lines_are_shares_of_the_limits_that_are_drawn():
    figure = client_figure([replay(late={3: 0.05, 4: 1.0})], ["wa"], LIMITS, HORIZON_S)
    late, lag = figure.variants[0].data
    (limit,) = [s["y0"] for s in figure.variants[0].layout["shapes"] if s["type"] == "line"]
    assert numbers(late["y"]) == pytest.approx(
        limit * np.array([0.1, 0.1, 0.1, 1.25, 2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]), abs=0.51
    )
    assert numbers(late["customdata"])[3:6] == pytest.approx([50, 1000, 4], abs=1e-3)
    assert numbers(lag["y"]) == pytest.approx(limit * np.full(11, 0.1), abs=0.51)


def test_a_request_that_was_never_sent_is_out_of_limits():
    figure = client_figure([replay(unsent=[4])], ["wa"], LIMITS, HORIZON_S)
    assert figure.details == ["seed 23, wa: sent late at 2 s, worst never sent"]
    assert figure.details_title == "1 stretch out of limits"


def test_lag_of_a_second_without_telemetry_is_in_the_next_row():
    held = replay(lag={6: 0.4})
    held.telemetry.drop(index=[4, 5], inplace=True)
    figure = client_figure([held], ["wa"], LIMITS, HORIZON_S)
    assert figure.details == ["seed 23, wa: loop lag 4\u20137 s, worst 400.0 ms"]


def test_a_second_without_requests_has_none_that_was_late():
    quiet = replay()
    quiet.requests.drop(index=[6, 7], inplace=True)
    figure = client_figure([quiet], ["wa"], LIMITS, HORIZON_S)
    assert numbers(figure.variants[0].data[0]["customdata"])[3] == 0
    assert figure.details == []
    assert "how late requests were sent (0 also where none was due)" in figure.caption


def test_p99_has_a_line_of_its_own_where_it_differs_from_the_worst():
    many = replay()
    at = np.linspace(0, 0.99, 200)
    sent = at + np.where(np.arange(200) == 7, 0.5, 0.004)
    requests = pd.DataFrame({"request_id": range(200), "arrival_s": at, "sent_s": sent})
    many = Replay("vllm", "r", 1, "judge", "wa", 0, 0, requests, pd.DataFrame(), many.telemetry)
    figure = client_figure([many], ["wa"], LIMITS, HORIZON_S)
    names = [trace["name"] for trace in figure.variants[0].data]
    assert names == ["sent late", "sent late, p99", "loop lag"]
    assert figure.details == []  # one request of 200 is beyond the p99


def test_judged_blocks_come_first_and_invalid_replays_are_marked():
    found = [
        replay("nosync", seed=11, role="calibration"),
        replay("nosync"),
        replay("wa"),
        replay("wa", draw=1),
    ]
    figure = client_figure(found, ["wa", "nosync"], LIMITS, HORIZON_S, {(23, "wa", 0, 0)})
    assert [variant.label for variant in figure.variants] == ["seed 23", "seed 11 (calibration)"]
    labels = [label["text"] for label in figure.variants[0].layout["annotations"]]
    assert labels == ["nosync", "wa \u00b7 \u2717 invalid", "wa repeat 1"]


def test_rows_out_of_limits_are_kept_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(client, "MAX_ROWS", 3)
    late = {4: 0.3}
    found = [replay("wa", draw=k, late=late if k in (3, 5) else {}) for k in range(6)]
    figure = client_figure([*found, replay("nosync")], ["wa"], LIMITS, HORIZON_S)
    labels = [label["text"] for label in figure.variants[0].layout["annotations"]]
    assert [label.partition(" \u00b7")[0] for label in labels] == [
        "wa",
        "wa repeat 3",
        "wa repeat 5",
    ]
    assert figure.notes == ["Seed 23: 3 of 7 replays are shown, those out of limits before others."]
    assert len(figure.details) == 2


def test_a_long_run_is_binned_and_says_so():
    figure = client_figure([replay(late={13: 0.3}, horizon=1500)], ["wa"], LIMITS, 1500.0)
    assert figure.variants[0].data[0]["dx"] == 3
    assert "one value per 3 s" in figure.caption
    assert figure.details == ["seed 23, wa: sent late 12\u201315 s, worst 300.0 ms"]


def test_an_engine_without_a_client_has_no_strip():
    computed = Replay("emulator", "r", 1, "judge", "wa", 0, 0, replay().requests, pd.DataFrame())
    assert client_figure([computed], ["wa"], LIMITS, HORIZON_S) is None
