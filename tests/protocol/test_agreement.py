"""Agreement of planted twins: errors, their interval, noise and what is left out."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from safesync.protocol.agreement import Twin, agreement_rows, left_out, summary
from safesync.tables.agreement import AGREEMENT

THRESHOLD_S = 1.0


def requests(late, size=100, latency_s=0.5):
    """Return REQUESTS of which ``late`` take 2 s, the others ``latency_s``."""
    e2e_s = np.full(size, latency_s)
    e2e_s[:late] = 2.0
    arrival_s = np.arange(size, dtype=float)
    return pd.DataFrame(
        {
            "request_id": np.arange(size),
            "arrival_s": arrival_s,
            "first_token_s": arrival_s + e2e_s / 5,
            "last_token_s": arrival_s + e2e_s,
            "done_s": arrival_s + e2e_s,
            "output_tokens": 10,
            "status": "ok",
        }
    )


def twin(schedule, measured, emulated=0, draw=0, policy="wa", lucks=(), **changes):
    identity = {
        "run": "r",
        "regime": "bursty",
        "seed": 1,
        "policy": policy,
        "draw": draw,
        "budget": 3,
        "schedule": schedule,
    }
    return Twin(
        identity, requests(measured, **changes), [requests(late) for late in lucks or (emulated,)]
    )


def found(twins):
    rows = agreement_rows(twins, "e2e", THRESHOLD_S)
    return rows, summary(rows, twins, 0.9)


def test_signed_errors_of_one_replay(tmp_path):
    rows, _ = found([twin("a", 10, 7, latency_s=0.4)])
    figures = rows.set_index("figure")
    assert len(rows) == 7
    rate = figures.loc["violation_rate"]
    assert (rate["measured"], rate["emulated"]) == (0.10, 0.07)
    assert rate["error"] == pytest.approx(-0.03)
    assert np.isnan(rate["relative_error"])
    assert figures.loc["e2e_p50_s", "relative_error"] == pytest.approx(0.5 / 0.4 - 1)
    assert figures.loc["ttft_p50_s", "error"] == pytest.approx(0.1 - 0.08)
    assert figures.loc["e2e_p95_s", "relative_error"] == pytest.approx(0.0)
    AGREEMENT.write(tmp_path / "part.parquet", rows)
    assert len(AGREEMENT.read(tmp_path / "part.parquet")) == 7


def test_mean_error_over_schedules_with_its_interval():
    _, agreed = found([twin("a", 10, 12), twin("b", 10, 10), twin("c", 10, 11)])
    assert agreed.error_points == pytest.approx(1.0)
    assert agreed.worst_points == pytest.approx(2.0)
    # t(0.95, 2 degrees) = 2.92, standard error 1 / sqrt(3)
    assert agreed.low_points == pytest.approx(1 - 2.92 / np.sqrt(3), abs=1e-3)
    assert agreed.high_points == pytest.approx(1 + 2.92 / np.sqrt(3), abs=1e-3)
    assert (agreed.noise_points, agreed.within_noise) == (None, None)


def test_repeats_are_averaged_and_give_the_noise():
    repeated = [twin("a", late, 12, draw) for draw, late in enumerate((8, 10, 12))]
    _, agreed = found([*repeated, twin("b", 10, 14), twin("c", 10, 15)])
    assert (agreed.replays, agreed.schedules, agreed.repeated) == (5, 3, 1)
    assert agreed.noise_points == pytest.approx(2.0)
    assert agreed.error_points == pytest.approx((2 + 4 + 5) / 3)
    assert agreed.within_noise == 2  # errors of 2 and 4 points; twice the noise is 4


def test_runs_without_merges_are_not_schedules_but_have_noise_of_their_own():
    nosync = [twin("none", late, 0, draw, policy="nosync") for draw, late in enumerate((0, 2))]
    _, agreed = found([*nosync, twin("a", 10, 11)])
    assert (agreed.replays, agreed.schedules) == (1, 1)
    assert agreed.noise_nosync_points == pytest.approx(np.sqrt(2))
    assert agreed.noise_points is None
    assert (agreed.low_points, agreed.high_points) == (None, None)
    assert found(nosync)[1] is None


def test_latencies_are_pooled_over_requests_and_p99_needs_a_thousand():
    few, many = ([twin(str(n), 10, 10) for n in range(count)] for count in (9, 10))
    assert {f.figure for f in found(few)[1].figures} == {
        f"{metric}_{quantile}_s" for metric in ("e2e", "ttft") for quantile in ("p50", "p95")
    }
    figures = {f.figure: f for f in found(many)[1].figures}
    assert figures["e2e_p99_s"].requests == 1000
    uneven = {f.figure: f for f in found([twin("a", 0, 0), twin("b", 12, 0)])[1].figures}
    assert uneven["e2e_p95_s"].measured == 2.0  # 12 of 200 are late
    assert uneven["e2e_p95_s"].emulated == 0.5


def test_failures_violate_but_have_no_latency():
    lossy = twin("a", 0, 0)
    lossy.measured.loc[:4, "status"] = "timeout"
    rows, agreed = found([lossy])
    assert set(rows["lost"]) == {5}
    assert agreed.error_points == pytest.approx(-5.0)
    dead = twin("a", 0, 0)
    dead.measured["status"] = "error"
    rows, agreed = found([dead])
    assert rows["figure"].tolist() == ["violation_rate"]
    assert agreed.figures == []


def test_the_sentence_says_by_how_much():
    _, agreed = found([twin(str(n), 10, 11 + n % 2) for n in range(10)])
    assert agreed.sentence.startswith(
        "Against 10 real replays that calibration never saw, the emulator's violation rate is off "
        "by +1.5 points (90% interval +1.2 to +1.8) on average, its pooled e2e p95 by +0%"
    )


def test_the_prediction_is_that_of_all_lucks_together():
    rows, agreed = found([twin("a", 10, lucks=(0, 4, 14))])
    figures = rows.set_index("figure")
    assert figures.loc["violation_rate", "emulated"] == pytest.approx(0.06)
    assert figures.loc["violation_rate", "error"] == pytest.approx(-0.04)
    # 18 of 300 emulated requests are late, 10 of 100 measured ones
    assert figures.loc["e2e_p95_s", ["measured", "emulated"]].tolist() == [2.0, 2.0]
    assert figures.loc["e2e_p95_s", "requests"] == 100
    assert {figure.requests for figure in agreed.figures} == {100}


def test_nothing_to_compare():
    rows, agreed = found([])
    assert rows.empty
    assert agreed is None


def test_invalid_replays_are_left_out_and_counted():
    kept = [twin("a", 10, 12), twin("b", 10, 14)]
    bad = [twin("c", 10, 90), twin("none", 0, 50, policy="nosync")]
    twins = [*kept, *(replace(one, valid=False) for one in bad)]
    rows, agreed = found(twins)
    pd.testing.assert_frame_equal(rows, found(kept)[0])
    assert (agreed.replays, agreed.schedules) == (2, 2)
    assert agreed.error_points == pytest.approx(3.0)
    assert {figure.requests for figure in agreed.figures} == {200}
    assert agreed.sentence.startswith(
        "Against 2 real replays that calibration never saw (1 invalid left out), the emulator's "
        "violation rate is off by +3.0 points"
    )
    assert left_out(twins) == (
        "The agreement leaves out 2 of 4 real replays: measured outside the limits."
    )


def test_valid_replays_leave_nothing_to_say_and_invalid_ones_alone_nothing_to_compare():
    good = twin("a", 10, 12)
    assert left_out([good]) is left_out([]) is None
    rows, agreed = found([replace(good, valid=False)])
    assert rows.empty
    assert agreed is None
