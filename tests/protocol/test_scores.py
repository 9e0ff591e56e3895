import numpy as np
import pandas as pd
import pytest

from safesync.placement import Corridor, overlap_cost
from safesync.protocol.scores import (
    ScoreError,
    exposed,
    metric_s,
    score,
    violates,
)
from safesync.protocol.validity import Limits, faults
from safesync.tables.arrivals import arrivals_sha256
from safesync.tables.scores import SCORES

LIMITS = Limits(lateness_s=0.02, loop_lag_s=0.1, merge_tolerance_s=0.25)
IDENTITY = {
    "run": "test",
    "tier": "vllm",
    "regime": "bursty",
    "kind": "bursty",
    "seed": 1,
    "role": "judge",
    "policy": "wa",
    "draw": 0,
    "budget": 1,
}


def requests_of(latencies, **changes):
    at = np.arange(len(latencies), dtype=float)
    rows = pd.DataFrame(
        {
            "request_id": range(len(latencies)),
            "arrival_s": at,
            "sent_s": at + 0.001,
            "first_token_s": at + 0.2,
            "last_token_s": at + np.asarray(latencies),
            "done_s": at + np.asarray(latencies),
            "prompt_tokens": 10,
            "output_tokens": 5,
            "status": "ok",
            "error": None,
        }
    )
    for name, values in changes.items():
        rows[name] = values
    return rows


def arrivals_like(requests):
    return requests[["request_id", "arrival_s"]].assign(prompt_tokens=10, output_tokens=5)


def merges_of(start=1.0, end=9.0, **changes):
    row = {
        "merge": 0,
        "step": 1,
        "planned_s": 1.0,
        "start_s": start,
        "end_s": end,
        "rounds": 3,
        "reduced_bytes": 100,
    }
    return pd.DataFrame([row | changes])


def scored(requests, *, nosync=None, merges=None, limits=LIMITS, metric="e2e", figures=None):
    arrivals = arrivals_like(requests)
    return score(
        requests,
        merges_of() if merges is None else merges,
        pd.DataFrame({"start_s": [1.0]}),
        arrivals,
        requests if nosync is None else nosync,
        slo_metric=metric,
        threshold_s=1.0,
        merge_s=8.0,
        feasible=True,
        identity=IDENTITY,
        manifest={
            "fingerprint": "m1",
            "arrivals_sha256": arrivals_sha256(arrivals),
            "figures": {"loop_lag_p99_s": 0.01, "prefix_hits": 0.0} | (figures or {}),
        },
        limits=limits,
    )


def test_a_row_fits_the_table(tmp_path):
    row = scored(requests_of([0.5, 2.0], status=["ok", "error"]))
    path = tmp_path / "part.parquet"
    SCORES.write(path, pd.DataFrame([row]))
    read = SCORES.read(path).iloc[0]
    assert read["e2e_p99_s"] == np.inf
    assert read["e2e_p99_ok_s"] == 0.5


def test_a_row_of_spacing_says_whose_gaps_it_has(monkeypatch):
    requests = requests_of([0.5])
    assert scored(requests)["control_of"] is None
    monkeypatch.setitem(IDENTITY, "control_of", "wa")
    assert scored(requests)["control_of"] == "wa"


def test_violation_is_slow_or_not_succeeded_and_no_request_is_lost():
    requests = requests_of(
        [0.5, 1.0, 1.5, 0.1, 0.1, 0.1],
        status=["ok", "ok", "ok", "error", "timeout", "censored"],
    )
    row = scored(requests, nosync=requests_of([0.5] * 5 + [3.0]))
    assert (row["requests"], row["ok"], row["failed"], row["censored"]) == (6, 3, 2, 1)
    assert row["violations"] == 4
    assert row["violation_rate"] == pytest.approx(4 / 6)
    assert row["excess_rate"] == pytest.approx(4 / 6 - 1 / 6)


def test_latencies_count_from_the_scheduled_arrival():
    requests = requests_of([0.9], sent_s=[0.8])
    assert metric_s(requests, "e2e")[0] == pytest.approx(0.9)
    assert metric_s(requests, "ttft")[0] == pytest.approx(0.2)
    assert metric_s(requests, "tpot")[0] == pytest.approx(0.7 / 4)


def test_a_single_token_has_no_tpot_and_cannot_violate_it():
    requests = requests_of([5.0, 5.0], output_tokens=[1, 5])
    assert np.isnan(metric_s(requests, "tpot")[0])
    assert violates(requests, "tpot", 1.0).tolist() == [False, True]
    assert scored(requests)["tpot_p50_s"] == pytest.approx(4.8 / 4)


def test_threshold_itself_is_met():
    assert violates(requests_of([1.0]), "e2e", 1.0).tolist() == [False]
    assert violates(requests_of([np.nextafter(1.0, 2)]), "e2e", 1.0).tolist() == [True]


def test_never_sent_is_infinitely_late_and_not_offered():
    row = scored(
        requests_of([0.5, 0.5], sent_s=[0.001, np.nan], status=["ok", "censored"]), limits=LIMITS
    )
    assert row["lateness_p99_s"] == np.inf
    assert row["sent"] == 1
    assert row["offered_prompt_tokens"] == 10
    assert not row["valid"]
    assert "never sent" in row["invalid_reason"]


def test_exposure_is_in_flight_at_the_start_or_arriving_inside():
    capture = pd.DataFrame(
        {"arrival_s": [0.0, 0.0, 2.0, 9.99, 10.0], "done_s": [2.0, 2.5, 3, 11, 12]}
    )
    assert exposed(capture, 2.0, 10.0).tolist() == [False, True, True, True, False]


def test_overlap_agrees_with_the_placement_room():
    rng = np.random.default_rng(0)
    corridor = Corridor(128, 512, 0.0625, 8.0, 100.0)
    at = np.round(np.sort(rng.uniform(0, 100, 300)), 1)
    capture = pd.DataFrame({"arrival_s": at, "done_s": at + np.round(rng.uniform(0, 4, 300), 1)})
    cost = overlap_cost(at, capture["done_s"].to_numpy(), corridor)
    steps = np.arange(0, corridor.n_starts, 37)
    for step in steps:
        start_s = step * 0.0625
        assert exposed(capture, start_s, start_s + 8.0).sum() == cost[step]
    starts_s = steps * 0.0625
    assert exposed(capture, starts_s, starts_s + 8.0).sum() == cost[steps].sum()
    assert exposed(capture, starts_s, starts_s + 8.0).sum(axis=1).tolist() == cost[steps].tolist()


def test_rows_must_be_those_of_the_arrivals():
    requests = requests_of([0.5, 0.5])
    arrivals = arrivals_like(requests)
    facts = {
        "slo_metric": "e2e",
        "threshold_s": 1.0,
        "merge_s": 8.0,
        "feasible": True,
        "identity": IDENTITY,
        "manifest": {"fingerprint": "m"},
    }
    tables = (merges_of(), pd.DataFrame({"start_s": [1.0]}))
    with pytest.raises(ScoreError, match="one row per arrival"):
        score(requests.head(1), *tables, arrivals, requests, **facts)
    with pytest.raises(ScoreError, match="other arrival times"):
        score(requests.assign(arrival_s=[0.0, 1.5]), *tables, arrivals, requests, **facts)
    with pytest.raises(ScoreError, match="budget 1 differs"):
        score(requests, tables[0], pd.DataFrame({"start_s": []}), arrivals, requests, **facts)
    with pytest.raises(ScoreError, match="metric 'e2'"):
        score(requests, *tables, arrivals, requests, **(facts | {"slo_metric": "e2"}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"requests": requests_of([0.5], sent_s=[0.0201])}, "client lateness p99"),
        ({"figures": {"loop_lag_p99_s": 0.11}}, "loop lag"),
        ({"figures": {"loop_lag_p99_s": None}}, "unknown"),
        ({"figures": {"prefix_hits": 3.0}}, "cached prompt tokens"),
        ({"merges": merges_of(start=1.26)}, "started"),
        ({"merges": merges_of(end=9.26)}, "ended"),
        ({"merges": merges_of(rounds=0)}, "reduced nothing"),
        (
            {"requests": requests_of([0.5] * 3, output_tokens=[5, 4, 6])},
            "2 of 3 answers have another length than asked",
        ),
        (
            {"requests": requests_of([0.5] * 2, output_tokens=[5, None])},
            "1 of 2 answers have no known length",
        ),
    ],
)
def test_invalid_measurements_say_why(changes, said):
    row = scored(**({"requests": requests_of([0.5])} | changes))
    assert not row["valid"]
    assert said in row["invalid_reason"]


def test_only_answers_have_a_length_and_it_is_found_by_request_id():
    requests = requests_of([0.5] * 3, output_tokens=[7, None, 3], status=["ok", "error", "timeout"])
    arrivals = arrivals_like(requests).assign(output_tokens=[7, 5, 5])
    shuffled = requests.iloc[::-1].reset_index(drop=True)
    shuffled["output_tokens"] = shuffled["output_tokens"].astype("Int32")
    facts = {"arrivals": arrivals, "arrivals_sha256": "a", "merge_s": 8.0, "limits": LIMITS}
    manifest = {"arrivals_sha256": "a", "figures": {"loop_lag_p99_s": 0.0, "prefix_hits": 0.0}}
    assert faults(shuffled, merges_of(), manifest, **facts) == []
    wrong = faults(shuffled.assign(output_tokens=5), merges_of(), manifest, **facts)
    assert wrong == ["1 of 1 answers have another length than asked"]


def test_requests_that_found_no_server_make_a_measurement_invalid():
    errors = ["ConnectionRefusedError: [Errno 111] Connection refused", "HTTP 503: busy", None]
    status = ["error", "error", "ok"]
    row = scored(requests=requests_of([0.5] * 3, status=status, error=errors))
    assert not row["valid"]
    assert row["invalid_reason"] == "no server listened for 1 of 3 requests"
    assert scored(requests=requests_of([0.5] * 2, status=status[1:], error=errors[1:]))["valid"]


def test_a_measurement_at_its_limits_is_valid():
    row = scored(
        requests_of([0.5], sent_s=[0.02]),
        merges=merges_of(start=1.25, end=9.25),
        figures={"loop_lag_p99_s": 0.1, "prefix_hits": None},
    )
    assert row["valid"]
    assert row["invalid_reason"] is None


def test_an_engine_without_a_client_is_valid():
    row = scored(requests_of([0.5], sent_s=[0.9]), limits=None)
    assert row["valid"]
