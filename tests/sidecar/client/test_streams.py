"""What is read out of a response (docs/load-generator.md): one run, a fault per request."""

import threading

import numpy as np
import pytest

FIRST_S, BETWEEN_S, TOKENS = 0.3, 0.1, 9
LAST_S = FIRST_S + (TOKENS - 1) * BETWEEN_S
CASES = {
    "plain": "",
    "cut": "cut",
    "no_done": "no_done",
    "fours": "fours",
    "final_usage": "final_usage",
    "empty_first": "empty_first",
    "role_first": "role_first",
    "reasoning": "reasoning,final_usage",
    "error_object": "error_object",
    "bytes": "bytes",
    "crlf": "crlf,bytes",
    "reset": "reset",
    "status_500": "status_500",
    "wrong_prompt": "wrong_prompt",
    "no_usage": "no_usage",
    "late_done": "late_done",
    "empty_text": "empty_text",
    "hang": "hang",
    "length_1": "",
    "length_2": "",
    "length_1000": "",
}
LENGTHS = {"length_1": 1, "length_2": 2, "length_1000": 1000}
IDS = {name: number for number, name in enumerate(CASES)}
WARM_UP = 30_000  # a key that no arrival has


@pytest.fixture(scope="module")
def run(start, make_arrivals):
    """One request per case, 50 ms apart, while a warm-up request is still in flight at t0."""
    rows = make_arrivals(
        0.05 * np.arange(len(CASES)),
        prompt_tokens=[LENGTHS.get(name, 32) for name in CASES],
        output_tokens=TOKENS,
    )
    pace = {
        "first_token_s": FIRST_S,
        "inter_token_s": BETWEEN_S,
        "text": " é😀",
        "fault": [f"{IDS[name]}:{fault}" for name, fault in CASES.items() if fault],
    }
    with start(rows, {"timeout_s": 3.0}, **pace) as (client, paced):
        warm_up = threading.Thread(target=paced.completion, args=([1000 + WARM_UP] * 32, 10))
        warm_up.start()
        client.go()
        measured = client.finish(paced)
        warm_up.join()
        measured.prefix_hits = paced.metric("prefix_cache_hits_total")
        return measured


def row(run, name):
    return run.row(IDS[name])


def ttft(run, name) -> float:
    return row(run, name)["first_token_s"] - row(run, name)["sent_s"]


def test_case_08_event_times_are_as_sent(run):
    """Chunks arrive every 100 ms; a reader that waits for full buffers sees them in fives."""
    plain = row(run, "plain")
    seen = plain["sent_s"] + plain["chunk_s"].astype(float)
    assert np.median(np.abs(seen - run.served(IDS["plain"])["writes_s"])) < 0.02
    assert np.median(np.diff(plain["chunk_s"])) == pytest.approx(BETWEEN_S, abs=0.03)
    assert plain["first_token_s"] == pytest.approx(seen[0], abs=1e-4)
    assert plain["last_token_s"] == pytest.approx(seen[-1], abs=1e-4)


@pytest.mark.parametrize("name", ["cut", "no_done"])
def test_case_09_no_success_without_done(run, name):
    """Judged by its headers, or by the end of the response, either stream is a success."""
    assert row(run, name)["status"] == "error"
    assert row(run, name)["error"]
    assert len(row(run, name)["chunk_s"]) > 0


def test_case_10_chunks_are_not_tokens(run):
    """Nine tokens in chunks of five and four: counting chunks gives two."""
    assert list(row(run, "fours")["chunk_tokens"]) == [5, 4]
    assert row(run, "fours")["output_tokens"] == TOKENS
    assert len(row(run, "fours")["chunk_s"]) == 2


def test_case_10_token_counts_are_not_guessed(run):
    """Without usage per event the tokens of a chunk are unknown (-1), not one."""
    final = row(run, "final_usage")
    assert list(final["chunk_tokens"]) == [-1] * TOKENS
    assert final["output_tokens"] == TOKENS
    assert final["status"] == "ok"


@pytest.mark.parametrize("name", ["empty_first", "role_first"])
def test_case_11_first_token_is_the_first_that_is_not_empty(run, name):
    """An empty chunk comes at once, the first token after 300 ms."""
    assert ttft(run, name) >= FIRST_S
    assert len(row(run, name)["chunk_s"]) == TOKENS


def test_case_12_reasoning_tokens_count(run):
    """A client that looks at text or content alone sees no token here."""
    assert row(run, "reasoning")["status"] == "ok"
    assert FIRST_S <= ttft(run, "reasoning") < FIRST_S + 0.25
    assert len(row(run, "reasoning")["chunk_s"]) == TOKENS


def test_case_12_tokens_without_text_count(run):
    """Special tokens have no text, but usage grows: by text alone there is no first token."""
    assert row(run, "empty_text")["status"] == "ok"
    assert list(row(run, "empty_text")["chunk_tokens"]) == [1] * TOKENS


def test_case_13_tokens_come_from_the_servers_usage(run):
    """Every ok row has the server's counts; without usage a row is no success."""
    ok = run.requests[run.requests["status"] == "ok"]
    assert (ok["output_tokens"] == TOKENS).all()
    assert row(run, "no_usage")["status"] == "error"
    assert "usage" in row(run, "no_usage")["error"]


def test_case_14_an_error_object_is_a_failure(run):
    """HTTP 200, tokens, an error object and [DONE]: a success by status or by [DONE]."""
    planted = row(run, "error_object")
    assert planted["status"] == "error"
    assert "planted mid-stream" in planted["error"]
    assert row(run, "status_500")["error"] == "HTTP 500: planted"


@pytest.mark.parametrize("name", ["bytes", "crlf"])
def test_case_15_streams_cut_at_every_byte_are_whole(run, name):
    """Each packet is one byte, the text is not ASCII: decoding by packet fails or loses tokens."""
    assert row(run, name)["status"] == "ok"
    assert list(row(run, name)["chunk_tokens"]) == [1] * TOKENS


def test_case_16_a_failure_has_its_time(run):
    """Reset after 1 s: the end is stamped, not 0, and the request was sent once, not again."""
    reset = row(run, "reset")
    assert reset["status"] == "error"
    assert reset["done_s"] - reset["arrival_s"] >= 1.0
    assert np.isnan(reset["first_token_s"])
    run.served(IDS["reset"])  # exactly one


def test_case_16_a_timeout_has_its_time(run):
    hang = row(run, "hang")
    assert hang["status"] == "timeout"
    assert hang["done_s"] - hang["sent_s"] == pytest.approx(3.0, abs=0.3)


def test_case_16_failures_are_failures_for_locust_too(run):
    failed = (run.requests["status"] != "ok").sum()
    assert run.locust["num_failures"] == failed
    assert run.locust["num_requests"] == len(run.requests)


def test_case_17_only_its_own_requests_are_rows(run):
    """A warm-up request in flight at t0 is on the server's list and not among the rows."""
    assert any(item["key"] == WARM_UP for item in run.truth)
    assert sorted(run.requests["request_id"]) == list(range(len(CASES)))


def test_case_18_prompts_do_not_hit_the_prefix_cache(run):
    """The server counts blocks of 16 tokens that it has seen; equal prompts would hit."""
    assert run.prefix_hits == 0


@pytest.mark.parametrize(("name", "length"), LENGTHS.items())
def test_case_19_prompts_have_the_length_asked_for(run, name, length):
    """The server received exactly that many token ids."""
    assert run.served(IDS[name])["prompt_tokens"] == length
    assert row(run, name)["prompt_tokens"] == length
    assert row(run, name)["status"] == "ok"


def test_case_19_another_length_is_an_error(run):
    """The server says one token more than was sent."""
    assert row(run, "wrong_prompt")["status"] == "error"
    assert row(run, "wrong_prompt")["error"] == "usage.prompt_tokens is 33, sent were 32"


def test_case_20_no_connection_is_used_again(measure, make_arrivals):
    """The server closes idle connections after 0.5 s, just when the second request comes."""
    rows = make_arrivals([0.0, 0.6], output_tokens=1)
    run = measure(rows, first_token_s=0.1, keep_alive_s=0.5)
    assert list(run.requests["status"]) == ["ok", "ok"]
    assert run.served(0)["connection"] != run.served(1)["connection"]


def test_case_23_the_end_is_the_last_token(run):
    """[DONE] comes 0.3 s after the last token: what follows the token is not the request's time."""
    late = row(run, "late_done")
    assert late["done_s"] == late["last_token_s"]
    assert late["last_token_s"] - late["sent_s"] < LAST_S + 0.25


def test_case_23_python_collects_no_garbage_meanwhile(steady):
    """The collector would run hundreds of times over 600 requests and pause the clock's reader."""
    assert steady.facts["gc_collections"] == 0


def test_the_body_is_what_was_planned(run):
    """Greedy, fixed length, streaming, with the usage that tokens are counted by."""
    assert run.served(IDS["plain"])["body"] == {
        "model": "paced",
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
