"""Several processes share one load: same t0, one set of tables, one fate."""

import signal

import numpy as np
import psutil
import pytest

PROCESSES = 3


def shards(client) -> list[psutil.Process]:
    found = psutil.Process(client.process.pid).children()
    assert len(found) == PROCESSES
    return found


def gone(process: psutil.Process) -> bool:
    """Whether it ended; what the machine's init has not collected yet has ended too."""
    try:
        psutil.wait_procs([process], timeout=5)
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(scope="module")
def run(start, make_arrivals):
    """100 requests per second for 0.9 s, the ids not in order of time; one is refused."""
    rows = make_arrivals(np.arange(90) / 100.0, output_tokens=3).iloc[::-1].reset_index(drop=True)
    pace = {"first_token_s": 0.1, "fault": ["7:status_500"]}
    with start(rows, {"processes": PROCESSES}, **pace) as (client, paced):
        client.go()
        measured = client.finish(paced)
        measured.prefix_hits = paced.metric("prefix_cache_hits_total")
        return measured


def test_every_arrival_is_sent_once_and_is_a_row_in_its_place(run):
    assert run.code == 0
    assert list(run.requests["request_id"]) == list(range(90))[::-1]
    np.testing.assert_array_equal(run.requests["arrival_s"], np.arange(90)[::-1] / 100.0)
    assert sorted(item["key"] for item in run.truth) == list(range(90))
    assert set(run.requests["status"][run.requests["request_id"] != 7]) == {"ok"}
    assert run.row(7)["error"] == "HTTP 500: planted"


def test_all_shards_share_one_t0(run):
    """A shard with a t0 of its own stamps its requests off the server's times."""
    assert run.facts["t0_monotonic_ns"] == run.t0_ns
    assert run.facts["processes"] == PROCESSES
    for shard in range(PROCESSES):
        ids = run.requests["request_id"][shard::PROCESSES]
        late = [run.served(key)["received_s"] - run.row(key)["arrival_s"] for key in ids]
        assert min(late) >= 0.0
        assert np.median(late) < 0.1


def test_the_loops_lag_has_one_row_per_tick(run):
    ticks = np.rint(run.loop_lag["t_s"] / 0.05).astype(int)
    assert list(ticks) == list(range(1, len(ticks) + 1))
    assert len(ticks) >= 19  # the last answer comes after 0.99 s


def test_locusts_statistics_are_those_of_all_shards(run):
    latency_ms = 1e3 * run.latency()
    assert (run.locust["num_requests"], run.locust["num_failures"]) == (90, 1)
    assert run.locust["errors"] == {"error: HTTP 500: planted": 1}
    assert run.locust["min_response_time_ms"] == pytest.approx(latency_ms.min())
    assert run.locust["avg_response_time_ms"] == pytest.approx(latency_ms.mean())
    assert run.locust["max_response_time_ms"] == pytest.approx(latency_ms.max())
    assert sum(run.locust["bucketed_counts"].values()) == 90
    median_ms = run.locust["bucketed_percentiles_ms"]["0.5"]
    assert median_ms == pytest.approx(latency_ms.sort_values().iloc[44], abs=5.0)  # half a bucket


def test_case_18_shards_share_no_prompt(run):
    """Workers that each draw from one seed sent equal prompts (vllm#54227)."""
    assert len({tuple(item["prompt"]) for item in run.truth}) == 90
    assert run.prefix_hits == 0


def test_nothing_else_is_left(run):
    assert {path.name for path in run.folder.iterdir()} == {
        "arrivals.parquet", "plan.json", "ready.json", "go.json",
        "requests.parquet", "loop_lag.parquet", "locust.json",
    }  # fmt: skip


def test_a_shard_that_dies_breaks_the_whole(start, make_arrivals):
    with start(make_arrivals(np.arange(6) / 2.0), {"processes": PROCESSES}) as (client, paced):
        client.go()
        client.sleep_until(0.5)
        first, second, third = shards(client)
        second.kill()
        run = client.finish(paced)
    assert run.code == 1
    said = [line for line in run.output.splitlines() if not line.startswith("client: sent")]
    assert said == ["client: process 2 of 3 was killed by SIGKILL; no table is written"]
    assert run.requests is None
    assert gone(first)
    assert gone(third)


@pytest.mark.parametrize("load", ["waits", "runs"])
def test_shards_end_with_a_parent_that_is_killed(start, make_arrivals, load):
    rows = make_arrivals([0.0, 60.0, 60.0, 60.0])
    with start(rows, {"processes": PROCESSES}) as (client, _):
        if load == "runs":
            client.go()
            client.sleep_until(0.3)
        left = shards(client)
        client.process.kill()
        assert all(map(gone, left))


def test_case_22_a_signal_censors_in_every_shard(start, make_arrivals):
    rows = make_arrivals([0.0, 0.1, 0.2, 60.0])
    with start(rows, {"processes": PROCESSES}, fault=["1:hang"]) as (client, paced):
        left = shards(client)
        client.go()
        client.sleep_until(1.0)
        client.process.send_signal(signal.SIGTERM)
        run = client.finish(paced)
    assert run.code == 143
    assert list(run.requests["status"]) == ["ok", "censored", "ok", "censored"]
    assert np.isnan(run.requests["sent_s"][3])
    assert all(map(gone, left))


def test_a_signal_before_t0_leaves_no_tables(start, make_arrivals):
    with start(make_arrivals([0.0, 0.0]), {"processes": 2}) as (client, _):
        client.process.send_signal(signal.SIGINT)
        run = client.finish()
    assert run.code == 130
    assert run.requests is None


def test_no_more_processes_than_arrivals(measure, make_arrivals):
    run = measure(make_arrivals([0.0, 0.1], output_tokens=1), {"processes": 5})
    assert list(run.requests["status"]) == ["ok", "ok"]
    assert run.facts["processes"] == 2


def test_bad_input_is_refused_once(start_client, make_arrivals):
    run = start_client("http://127.0.0.1:1", make_arrivals([0.0] * 3), key="bad\nkey", processes=3)
    ended = run.finish()
    assert ended.code == 2
    assert ended.output == "client: SAFESYNC_API_KEY: expected printable ASCII characters only\n"
