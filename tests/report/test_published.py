"""A run beside the study: the ratio by hand, and the study's figures as it published them."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from safesync.protocol.published import merge_share_fit, read_figures
from safesync.report.published import (
    SAID,
    compare,
    during_merges,
    own_outcomes,
    p95_ratio,
    study_outcomes,
)
from safesync.report.replay import Replay

FACTS = {"metric": "e2e", "threshold_s": 2.5, "merge_s": 2.0}


@pytest.fixture(scope="module")
def figures():
    return read_figures("resources/published/figures.csv")


def requests_of(latencies, status="ok"):
    at = np.arange(len(latencies), dtype=float)
    return pd.DataFrame(
        {
            "request_id": range(len(at)),
            "arrival_s": at,
            "done_s": at + np.asarray(latencies),
            "status": status,
        }
    )


QUIET = requests_of([1.5] * 10)
# the window [2, 4) meets requests 1 (in flight until 2.5), 2 and 3
HURT = requests_of([1.0, 2.0, 3.0, 6.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0])


def replay(policy, requests, starts, seed=23, draw=0):
    merges = pd.DataFrame({"planned_s": starts}, dtype=float)
    return Replay("vllm", "r", seed, "judge", policy, draw, len(starts), requests, merges)


def test_ratio_is_p95_of_requests_in_merges_over_that_of_the_others():
    during = during_merges(QUIET.iloc[::-1], [2.0], [4.0])
    assert during.nonzero()[0].tolist() == [1, 2, 3]
    assert p95_ratio(HURT, during) == 3.0
    assert p95_ratio(HURT.iloc[::-1], during) == 3.0
    assert p95_ratio(HURT, during_merges(QUIET, [2.0, 5.5], [4.0, 7.0])) == 6.0


def test_ratio_needs_both_groups_and_a_finite_denominator():
    during = during_merges(QUIET, [2.0], [4.0])
    assert math.isnan(p95_ratio(HURT, np.zeros(10, bool)))
    assert math.isnan(p95_ratio(HURT, np.ones(10, bool)))
    assert math.isnan(p95_ratio(HURT.assign(status="error"), during))
    failed = HURT.assign(status=["ok"] * 3 + ["error"] + ["ok"] * 6)
    assert p95_ratio(failed, during) == math.inf


def test_own_outcomes_are_means_by_policy():
    calm = replay("wa", QUIET, [2.0], seed=24)
    nosync = {23: replay("nosync", QUIET, []), 24: replay("nosync", QUIET, [], seed=24)}
    apart = replay("wa", HURT, [2.0], seed=99)
    (found,) = own_outcomes([replay("wa", HURT, [2.0]), calm, apart], nosync, ["wa"], **FACTS)
    assert (found.policy, found.runs) == ("wa", 2)
    assert found.p95_ratio == pytest.approx((3.0 + 1.0) / 2)
    assert found.violation_rate == pytest.approx((0.2 + 0.0) / 2)
    assert found.met == pytest.approx(3 / 10)
    assert found.quiet_ratio == 1.0


def test_the_load_alone_makes_a_ratio_of_its_own():
    slow = requests_of([1.5, 1.5, 3.0, 3.0, *[1.5] * 6])
    merged, nosync = replay("wa", slow, [2.0]), {23: replay("nosync", slow, [])}
    (found,) = own_outcomes([merged], nosync, ["wa"], **FACTS)
    assert (found.p95_ratio, found.quiet_ratio) == (2.0, 2.0)


def test_violations_that_no_merge_met_are_told_apart():
    late = requests_of([1.0, 1.0, 6.0, 1.0, 1.0, 1.0, 6.0, 6.0, 1.0, 1.0])
    nosync = {23: replay("nosync", QUIET, [])}
    (found,) = own_outcomes([replay("wa", late.iloc[::-1], [2.0])], nosync, ["wa"], **FACTS)
    assert (found.violation_rate, found.unmet) == (0.3, 0.2)


def test_an_overlapped_merge_lasts_until_the_next_one():
    manifest = {"config": {"merge": {"style": "overlapped"}}, "horizon_s": 40.0}
    spread = replace(replay("wa", HURT, [2.0, 7.0]), manifest=manifest)
    nosync = {23: replay("nosync", QUIET, [])}
    (found,) = own_outcomes([spread], nosync, ["wa"], **FACTS)
    assert found.met == pytest.approx(9 / 10)


def test_the_study_as_it_published_its_figures(figures):
    steady = {outcome.policy: outcome for outcome in study_outcomes(figures, "steady")}
    assert steady["random_matched"].violation_rate == pytest.approx(0.0638, abs=5e-5)
    shares = [1112 / 5600, 1224 / 5728, 936 / 5568, 1192 / 5592, 976 / 5648]
    assert steady["fixed_h_256"].met == pytest.approx(sum(shares) / 5)
    assert steady["fixed_h_256"].runs == 5
    bursty = {outcome.policy: outcome for outcome in study_outcomes(figures, "bursty")}
    assert bursty["offline_calibrated"].violation_rate == pytest.approx(0.0445, abs=6e-5)
    assert bursty["wa_diloco"].violation_rate == pytest.approx(0.0692, abs=6e-5)
    assert bursty["random_matched"].runs == 25
    ordinary = study_outcomes(figures, "ordinary")
    assert len(ordinary) == 6
    assert all(outcome.p95_ratio == pytest.approx(1, abs=0.001) for outcome in ordinary)
    assert all(math.isnan(outcome.violation_rate) for outcome in ordinary)
    assert study_outcomes(figures, "of no kind") == []


def test_what_is_said_of_the_study_is_in_its_figures(figures):
    assert set(SAID) == {"ordinary", "pressure", "steady", "bursty"}
    fit, _, _ = merge_share_fit(figures, "steady")
    assert f"{fit:.0%}".replace("%", " %") in SAID["steady"]
    assert (figures["regime"] == "steady").sum() == 30
    rates = {o.policy: o.violation_rate for o in study_outcomes(figures, "bursty")}
    order = sorted(rates, key=rates.get)
    assert order[:4] == ["offline_calibrated", "online_calibrated", "random_matched", "wa_diloco"]
    assert order[-1] == "fixed_h_256"
    pressure = study_outcomes(figures, "pressure")
    assert all(outcome.p95_ratio == pytest.approx(1, abs=0.01) for outcome in pressure)
    rates = [outcome.violation_rate for outcome in pressure]
    assert 0.35 < min(rates) < max(rates) < 0.38


def test_the_two_stand_side_by_side(figures):
    found = [
        replay("nosync", QUIET, []),
        replay("wa", HURT, [2.0]),
        replay("matched_random", QUIET, [2.0]),
    ]
    beside = compare(figures, "pressure", found, {23: found[0]}, ["wa"], **FACTS)
    assert beside.rows == [
        ("p95 during a merge / p95 of the others", "0.99 to 1.00", "1.00 to 3.00"),
        ("of the same requests without merges", "not published", "1.00"),
        ("violations, by policy", "35.9 to 37.2 %", "0.0 to 20.0 %"),
        ("violations during no merge, of all requests", "not published", "0.0 %"),
        ("between policies, points", "1.3", "20.0"),
        ("requests during a merge, by policy", "10.5 to 29.6 %", "30.0 %"),
        ("violations without merges", "not published", "0.0 %"),
    ]
    assert [outcome.policy for outcome in beside.own] == ["wa", "matched_random (1 merge)"]
    empty = compare(figures, "ordinary", [], {}, [], **FACTS)
    assert [row[2] for row in empty.rows] == ["\u2013"] * 7
    assert empty.rows[2][1] == "\u2013"
    bursty = compare(figures, "bursty", [], {}, [], **FACTS)
    assert bursty.rows[5][1].endswith("% (1 of 7)")
    assert compare(figures, "own", found, {}, [], **FACTS) is None
