"""How a run ends: the stop, signals, servers that refuse (docs/load-generator.md 22)."""

import signal
import socket

import numpy as np
import pytest


def test_case_22_in_flight_requests_are_censored_at_the_stop(measure, make_arrivals):
    """Three requests are in flight at the stop and one was never sent: four rows, not none."""
    rows = make_arrivals([0.0, 0.3, 0.4, 0.5, 2.0], output_tokens=1)
    run = measure(rows, {"stop_s": 1.0}, first_token_s=0.2, fault=["1:hang", "2:hang", "3:hang"])
    assert run.code == 0
    assert list(run.requests["status"]) == ["ok", *["censored"] * 4]
    assert (run.requests["done_s"][1:] == 1.0).all()
    assert list(run.requests["sent_s"].isna()) == [False] * 4 + [True]
    assert run.requests["first_token_s"][1:].isna().all()
    assert run.locust["num_requests"] == 5
    assert run.locust["num_failures"] == 4


def test_case_22_tokens_before_the_stop_are_kept(measure, make_arrivals):
    """A stream that the stop cuts keeps its chunks and the tokens that the server had counted."""
    run = measure(
        make_arrivals([0.0], output_tokens=50),
        {"stop_s": 0.6},
        first_token_s=0.1,
        inter_token_s=0.1,
    )
    (row,) = run.requests.itertuples()
    assert row.status == "censored"
    assert 3 <= row.output_tokens == len(row.chunk_s) < 7
    assert row.last_token_s < row.done_s == 0.6


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_case_22_a_signal_censors_and_writes(start, make_arrivals, number, code):
    """Killed in mid-run, the client still answers for every arrival."""
    with start(make_arrivals([0.0, 0.2, 5.0]), fault=["1:hang"]) as (client, paced):
        client.go()
        client.sleep_until(1.0)
        client.process.send_signal(number)
        run = client.finish(paced)
    assert run.code == code
    assert list(run.requests["status"]) == ["ok", "censored", "censored"]
    assert run.requests["done_s"][1] == pytest.approx(1.0, abs=0.5)
    assert np.isnan(run.requests["sent_s"][2])


def test_a_signal_before_t0_leaves_no_tables(start, make_arrivals):
    with start(make_arrivals([0.0])) as (client, _):
        client.process.send_signal(signal.SIGTERM)
        run = client.finish()
    assert run.code == 143
    assert run.requests is None


def test_a_server_that_is_not_there_is_an_error_per_row(start_client, make_arrivals):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = start_client(f"http://127.0.0.1:{port}", make_arrivals([0.0, 0.1]))
    client.go()
    run = client.finish()
    assert run.code == 0
    assert list(run.requests["status"]) == ["error", "error"]
    assert run.requests["error"].str.contains("refused").all()
    assert run.requests["done_s"].notna().all()
