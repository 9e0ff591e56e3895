"""When requests are sent and from when they are timed (docs/load-generator.md 1-7, 21, 24)."""

import time

import numpy as np
import pytest

from safesync.sidecar.client.dispatch import walk


def test_case_01_waiting_is_part_of_the_latency(measure, make_arrivals):
    """8 requests at 10 rps, served one by one in 0.5 s: the k-th takes 0.5 (k+1) - 0.1 k.

    A client that waits for a slot of its own and starts its clock afterwards reports 0.5 s for all.
    """
    rows = make_arrivals(np.arange(8) / 10.0, output_tokens=1)
    run = measure(rows, first_token_s=0.5, slots=1)
    expected = 0.5 + 0.4 * np.arange(8)
    assert run.code == 0
    assert (run.requests["status"] == "ok").all()
    assert run.lateness().max() < 0.25  # no one waited for an answer to be sent
    np.testing.assert_allclose(run.latency(), expected, atol=0.2)


def test_case_02_lateness_is_kept_above_the_clients_capacity(measure, make_arrivals):
    """300 arrivals at one instant: no client sends them at once, and each row says how late.

    A client whose rows start at the sending would show no lateness at all; one with a pool of
    Locust's default 10 connections would have 10 in flight and need 15 s.
    """
    run = measure(make_arrivals(np.full(300, 0.2), output_tokens=1), first_token_s=0.5, slots=300)
    assert (run.requests["status"] == "ok").all()
    assert run.lateness().is_monotonic_increasing
    assert run.lateness().iloc[-1] > run.lateness().iloc[0] + 0.005
    assert run.latency().max() < 5.0
    assert (run.latency() > run.lateness() + 0.5).all()


def test_case_02_lateness_is_kept_when_the_client_stalls(stalled):
    """Requests due while the client stood still from 1.0 to 1.6 s were sent late, all of them."""
    due = stalled.requests["arrival_s"].between(1.05, 1.5)
    np.testing.assert_allclose(stalled.requests["sent_s"][due], 1.6, atol=0.15)
    assert len(stalled.requests) == 150
    assert (stalled.requests["status"] == "ok").all()


def test_case_03_a_blocked_generator_is_not_rewarded(stalled):
    """Latency runs from the schedule: timed from the sending it would be 0.1 s for all."""
    due = stalled.requests["arrival_s"].between(1.05, 1.15)
    assert stalled.latency()[due].min() > 0.5


def test_case_04_absolute_deadlines_keep_the_rate(steady):
    """600 requests in 3 s; sleeps that are relative run at least 0.14 s late by the end."""
    assert len(steady.requests) == 600
    assert len({item["key"] for item in steady.truth}) == 600
    assert steady.lateness().min() >= 0.0
    assert steady.lateness().iloc[-50:].median() < 0.05


def test_case_05_the_timer_is_never_anchored_again():
    """1000 deadlines 200 us apart: anchored to each wake-up they need more than 1 s, not 0.2."""
    start = time.monotonic()
    sent = []

    def now() -> float:
        return time.monotonic() - start

    walk(((0.0002 * k, k) for k in range(1000)), now, lambda k: sent.append((k, now())))
    assert [k for k, _ in sent] == list(range(1000))
    assert all(at_s >= 0.0002 * k for k, at_s in sent)
    assert sent[-1][1] < 0.5


def test_case_05_a_stall_does_not_move_later_deadlines(stalled):
    """After the stall at 1.6 s the rows due from 2 s on are on time; re-anchored, 0.6 s late."""
    later = stalled.requests["arrival_s"] > 2.0
    assert stalled.lateness()[later].median() < 0.1


def test_case_06_the_loops_lag_is_measured(stalled):
    """The stall shows in the probe as 0.6 s falling by 50 ms per tick; one sample would hide it."""
    lag = stalled.loop_lag.set_index(np.rint(stalled.loop_lag["t_s"] / 0.05).astype(int))["lag_s"]
    assert list(lag.index) == list(range(1, len(lag) + 1))
    np.testing.assert_allclose(lag.loc[21:31], 1.6 - 0.05 * np.arange(21, 32), atol=0.1)
    assert lag.loc[:18].median() < 0.05


@pytest.mark.parametrize("tokens", [16, 50_000])
def test_case_07_large_bodies_do_not_slow_the_first_token(measure, make_arrivals, tokens):
    """First tokens are seen when the server wrote them, whatever the size of the prompts."""
    rows = make_arrivals(0.2 * np.arange(5), prompt_tokens=tokens, output_tokens=1)
    run = measure(rows, first_token_s=0.1)
    assert (run.requests["status"] == "ok").all()
    written = np.array([run.served(key)["writes_s"][0] for key in range(5)])
    assert np.median(run.requests["first_token_s"] - written) < 0.02


def test_case_07_large_bodies_do_not_delay_other_requests(measure, make_arrivals):
    """Twenty prompts of 50,000 tokens and, 1 ms behind each, one of 16.

    Bodies that are serialised when they are sent, some 10 ms each, hold up whoever comes next: the
    small requests would be sent 0.2 s late by the end, and their first tokens read as late.
    """
    behind = np.repeat([0.2, 0.201], 20)
    sizes = np.repeat([50_000, 16], 20)
    run = measure(make_arrivals(behind, prompt_tokens=sizes, output_tokens=1), first_token_s=1.0)
    small = run.requests["request_id"] >= 20
    assert (run.requests["status"] == "ok").all()
    assert run.lateness()[small].median() < 0.1
    written = np.array([run.served(key)["writes_s"][0] for key in range(20, 40)])
    assert np.median(run.requests["first_token_s"][small] - written) < 0.02


def test_case_21_rows_hold_raw_times(steady):
    """Locust counts 147 ms and more as 150 or 160; the rows keep every microsecond."""
    latency_ms = 1e3 * steady.latency()
    assert latency_ms.min() >= 147.0
    assert (np.abs(latency_ms / 10 - np.rint(latency_ms / 10)) > 1e-6).mean() > 0.99
    assert steady.locust["bucketed_percentiles_ms"]["0.5"] % 10 == 0
    assert latency_ms.quantile(0.99) <= latency_ms.max()


def test_case_24_both_times_are_kept(stalled):
    """The scheduled time stays the trace's, the sending is apart; neither replaces the other."""
    assert np.array_equal(stalled.requests["arrival_s"], np.arange(150) / 50.0)
    late = stalled.lateness() > 0.3
    assert late.sum() >= 10
    for request_id in stalled.requests["request_id"][late]:
        received_s = stalled.served(request_id)["received_s"]
        assert received_s >= stalled.row(request_id)["sent_s"]


def test_locusts_own_statistics_agree_with_the_rows(stalled):
    """Same count, and times from the schedule: timed from the sending the maximum is 0.1 s."""
    latency_ms = 1e3 * stalled.latency()
    assert stalled.locust["num_requests"] == len(stalled.requests)
    assert stalled.locust["num_failures"] == 0
    assert stalled.locust["max_response_time_ms"] == pytest.approx(latency_ms.max())
    assert stalled.locust["avg_response_time_ms"] == pytest.approx(latency_ms.mean())
