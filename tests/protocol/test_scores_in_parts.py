"""Tables too long to hold: rates stay exact, percentiles within their bound, faults are found."""

import math

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from safesync.protocol import percentiles, scores
from safesync.protocol.percentiles import RELATIVE_ERROR, Percentiles, percentile
from safesync.protocol.scores import METRICS, ScoreError, Tally, score, score_table
from safesync.tables import TableError
from safesync.tables.requests import REQUESTS
from safesync.tables.scores import SCORES

QUANTILES = (0.01, 0.5, 0.95, 0.99, 1.0)
IDENTITY = {
    "run": "test",
    "tier": "emulator",
    "regime": "bursty",
    "kind": "bursty",
    "seed": 1,
    "role": "judge",
    "policy": "nosync",
    "draw": 0,
    "budget": 0,
}


def latencies(size, seed=1):
    """Return times of 1 ms to some minutes, one in 50 of them infinite."""
    rng = np.random.default_rng(seed)
    values = rng.lognormal(-1, 2, size)
    values[rng.random(size) < 0.02] = np.inf
    return values


def fed(values, *sizes):
    """Return Percentiles of values that came in parts of these sizes, and the rest."""
    found = Percentiles()
    for part in np.split(values, np.cumsum(sizes)):
        found.add(part)
    return found


def within(found, expected):
    return found == expected or abs(found - expected) <= RELATIVE_ERROR * expected


def test_few_values_in_parts_are_exact():
    values = latencies(1000)
    found = fed(values, 1, 0, 500)
    assert found.exact
    for quantile in QUANTILES:
        assert found.at(quantile) == percentile(values, quantile)
        finite = values[np.isfinite(values)]
        assert found.at(quantile, finite=True) == percentile(finite, quantile)


@pytest.mark.parametrize("sizes", [(), (60,), (100, 1), (5000, 0, 5000), (19_999,)])
def test_many_values_are_within_the_bound_however_they_come(monkeypatch, sizes):
    monkeypatch.setattr(percentiles, "EXACT_VALUES", 100)
    values = latencies(20_000)
    found = fed(values, *sizes)
    assert not found.exact
    assert RELATIVE_ERROR < 0.001
    finite = values[np.isfinite(values)]
    for quantile in QUANTILES:
        assert within(found.at(quantile), percentile(values, quantile)), quantile
        assert within(found.at(quantile, finite=True), percentile(finite, quantile)), quantile
    assert found.at(1.0) == math.inf
    assert found.at(0.5) != percentile(values, 0.5)


def test_the_bound_holds_at_the_edges_of_buckets(monkeypatch):
    monkeypatch.setattr(percentiles, "EXACT_VALUES", 0)
    powers = 2.0 ** np.arange(-20, 21)
    inner = powers[1:] * (1 + np.arange(40) * 2.0**-11)
    for value in [*powers, *np.nextafter(powers[1:], 0), *inner, *np.nextafter(inner, 0)]:
        assert within(fed(np.full(3, value)).at(0.5), value), value


def test_less_than_a_microsecond_counts_as_one(monkeypatch):
    monkeypatch.setattr(percentiles, "EXACT_VALUES", 0)
    for value in (-1e-9, 0.0, 1e-12, 9e-7):
        assert fed(np.array([value])).at(0.5) == pytest.approx(2.0**-20, rel=RELATIVE_ERROR)


def test_no_value_has_no_percentile():
    assert math.isnan(Percentiles().at(0.5))
    lost = fed(np.full(3, np.inf))
    assert lost.at(0.5) == math.inf
    assert math.isnan(lost.at(0.5, finite=True))
    with pytest.raises(ValueError, match="outside"):
        Percentiles().at(0.0)


def requests(size=500, seed=3):
    """Return REQUESTS of every status, some of one token, some never sent."""
    rng = np.random.default_rng(seed)
    arrival_s = np.sort(rng.uniform(0, 60, size))
    first_token_s = arrival_s + rng.uniform(0.05, 0.3, size)
    done_s = first_token_s + rng.exponential(0.5, size)
    status = rng.choice(["ok", "error", "timeout", "censored"], size, p=[0.9, 0.04, 0.03, 0.03])
    sent = (status != "censored") | (rng.random(size) < 0.5)
    return pd.DataFrame(
        {
            "request_id": np.arange(size),
            "arrival_s": arrival_s,
            "sent_s": np.where(sent, arrival_s + 0.001, np.nan),
            "first_token_s": np.where(sent, first_token_s, np.nan),
            "last_token_s": np.where(sent, done_s, np.nan),
            "done_s": done_s,
            "prompt_tokens": pd.array([16] * size, dtype="Int32"),
            "output_tokens": pd.array(rng.integers(1, 9, size), dtype="Int32"),
            "status": status,
            "error": None,
            "chunk_s": None,
            "chunk_tokens": None,
        }
    )


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "part.parquet"
    REQUESTS.write(path, requests())
    return path


def whole(path, metric):
    """Return the row of SCORES of the same table, held at once."""
    rows = REQUESTS.read(path)
    return score(
        rows,
        pd.DataFrame({"start_s": [], "end_s": []}),
        pd.DataFrame({"start_s": []}),
        rows[["request_id", "arrival_s", "prompt_tokens", "output_tokens"]],
        rows,
        slo_metric=metric,
        threshold_s=0.5,
        merge_s=8.0,
        feasible=True,
        identity=IDENTITY,
        manifest={"fingerprint": "m1"},
    )


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("rows", [7, 500, 2**20])
def test_a_table_in_parts_scores_as_the_whole(table, monkeypatch, metric, rows):
    monkeypatch.setattr(scores, "_PART_ROWS", rows)
    found = score_table(table, slo_metric=metric, threshold_s=0.5)
    expected = whole(table, metric)
    assert found.pop("percentile_error") == 0.0
    assert len(found) == 26
    assert 0 < found["violations"] < found["requests"] == 500
    assert found["failed"] and found["censored"] and found["sent"] < 500
    for name, value in found.items():
        assert name in SCORES.schema.names
        assert value == pytest.approx(expected[name], rel=0, abs=0, nan_ok=True), name


def test_a_long_table_keeps_its_rates_and_bounds_its_percentiles(table, monkeypatch):
    monkeypatch.setattr(scores, "_PART_ROWS", 64)
    monkeypatch.setattr(percentiles, "EXACT_VALUES", 100)
    found = score_table(table, slo_metric="e2e", threshold_s=0.5)
    monkeypatch.undo()
    expected = whole(table, "e2e")
    assert found.pop("percentile_error") == RELATIVE_ERROR
    for name, value in found.items():
        if name.endswith("_s"):
            assert within(value, expected[name]), name
        else:
            assert value == expected[name], name
    assert found["e2e_p95_ok_s"] != expected["e2e_p95_ok_s"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": ["ok"] * 499 + ["lost"]}, r"unknown request status \['lost'\]"),
        ({"status": ["ok"] * 499 + [None]}, r"unknown request status \['nan'\]"),
        (
            {"status": ["ok"] * 500, "done_s": [1.0] * 499 + [np.nan]},
            "request 499 succeeded but has no done_s",
        ),
    ],
)
def test_a_fault_in_the_last_part_is_found(tmp_path, monkeypatch, changes, said):
    monkeypatch.setattr(scores, "_PART_ROWS", 100)
    path = tmp_path / "part.parquet"
    REQUESTS.write(path, requests().assign(**changes))
    with pytest.raises(ScoreError, match=said):
        score_table(path, slo_metric="e2e", threshold_s=0.5)


def test_what_is_no_requests_table_is_refused_in_one_sentence(tmp_path, table):
    def refused(path, said):
        with pytest.raises(TableError, match=said) as caught:
            score_table(path, slo_metric="e2e", threshold_s=0.5)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)

    refused(tmp_path / "absent.parquet", "not a readable Parquet file")
    other = tmp_path / "scores.parquet"
    SCORES.write(other, SCORES.empty())
    refused(other, r"no column \['request_id', .*\]; expected a table 'requests'")
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(table.read_bytes()[:-200])
    refused(cut, "not a readable Parquet file")
    with pytest.raises(ScoreError, match="slo metric 'e2' is unknown"):
        score_table(table, slo_metric="e2", threshold_s=0.5)


def test_an_empty_replay_has_no_rate():
    row = Tally("e2e", 0.5).row()
    assert row["requests"] == row["violations"] == 0
    assert math.isnan(row["violation_rate"])
    assert math.isnan(row["e2e_p99_s"])


def test_every_row_group_is_read(table, tmp_path):
    rows = pq.read_table(table)
    grouped = tmp_path / "grouped.parquet"
    pq.write_table(rows, grouped, row_group_size=90)
    assert pq.ParquetFile(grouped).num_row_groups == 6
    one, several = (
        score_table(path, slo_metric="ttft", threshold_s=0.2) for path in (table, grouped)
    )
    assert one == several
