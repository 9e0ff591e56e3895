"""What holds for every replay: equality with a plain reference, conservation, monotonicity."""

from itertools import pairwise

import numpy as np
import pytest
from emulator.reference import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from safesync.emulator import Trace, Windows, latencies, simulate, simulate_stream

TOLERANCE_S = 1e-9
PHASES = (
    {"phase": "reduce", "factor": 1.7},
    {"phase": "optimizer", "factor": 2.0, "per_sequence": 0.3},
    {"phase": "checkpoint", "factor": 0.5, "delay_s": 0.3, "overhead_s": 0.7},
)


@st.composite
def cases(draw, most=20):
    """A small trace with windows and limits, tight enough for queues, chunks and preemption."""
    block_size, blocks = draw(st.integers(1, 5)), draw(st.none() | st.integers(4, 30))
    room = 200 if blocks is None else block_size * blocks + 1
    size = draw(st.integers(1, most))
    lengths = st.lists(st.integers(1, 14), min_size=size, max_size=size)
    output = np.minimum(draw(lengths), room - 1)
    prompt = np.minimum(draw(lengths), room - output)
    span_s = draw(st.sampled_from([0.0, 1.0, 20.0, 200.0]))
    shares = draw(st.lists(st.floats(0, 1), min_size=size, max_size=size))
    edges = sorted(draw(st.sets(st.floats(0, 150), max_size=8)))
    if draw(st.booleans()) and len(edges) > 1:
        edges = [edges[0], *np.repeat(edges[1:-1], 2), edges[-1]]  # windows that touch
    edges = edges[: len(edges) // 2 * 2]
    phase = draw(st.lists(st.integers(0, 2), min_size=len(edges) // 2, max_size=len(edges) // 2))
    settings_ = {
        "max_num_seqs": draw(st.integers(1, 7)),
        "max_num_batched_tokens": draw(st.integers(1, 30)),
        "kv_blocks": blocks,
        "block_size": block_size,
        "overhead_s": draw(st.sampled_from([0.0, 0.4])),
        "step": {"per_context_token_s": draw(st.sampled_from([0.0, 0.01]))},
        "contention": PHASES,
    }
    trace = Trace.of(span_s * np.sort(shares), prompt, output)
    windows = Windows.of(edges[::2], edges[1::2], phase)
    return trace, windows.varied(0.4, np.random.default_rng(size)), settings_


@settings(max_examples=250, deadline=None)
@given(case=cases())
def test_the_compiled_engine_equals_a_plain_one(make_model, case):
    trace, windows, limits = case
    model = make_model(**limits)
    token_s, steps, preemptions = reference(trace, windows, model)
    recorded = simulate(trace, windows, model, chunks=True)
    assert (recorded.steps, recorded.preemptions) == (steps, preemptions)
    np.testing.assert_allclose(recorded.token_s, np.concatenate(token_s), atol=TOLERANCE_S, rtol=0)
    replay = simulate(trace, windows, model)
    first, last = [[tokens[at] for tokens in token_s] for at in (0, -1)]
    np.testing.assert_allclose(replay.first_token_s, first, atol=TOLERANCE_S, rtol=0)
    np.testing.assert_allclose(replay.last_token_s, last, atol=TOLERANCE_S, rtol=0)


@settings(max_examples=100, deadline=None)
@given(case=cases())
def test_every_token_comes_once_in_order_and_never_too_soon(make_model, case):
    trace, _, limits = case
    model = make_model(**limits)
    replay = simulate(trace, Windows.none(), model, chunks=True)
    assert replay.token_s.size == trace.output_tokens.sum()
    step = model.step
    for at, tokens in enumerate(np.split(replay.token_s, np.cumsum(trace.output_tokens)[:-1])):
        ready_s = trace.arrival_s[at] + model.client_overhead_s
        prefill_s = step.base_s + step.per_prefill_token_s * trace.prompt_tokens[at]
        assert tokens[0] >= ready_s + prefill_s - TOLERANCE_S
        assert (np.diff(tokens) >= step.base_s + step.per_decode_s - TOLERANCE_S).all()
        assert (replay.first_token_s[at], replay.last_token_s[at]) == (tokens[0], tokens[-1])


@settings(max_examples=100, deadline=None)
@given(case=cases())
def test_no_work_is_lost_or_made_up(make_model, case):
    # all at once and without preemption, the run's length is the sum of its parts, however split
    trace, _, limits = case
    model = make_model(**(limits | {"kv_blocks": None, "step": {}}))
    trace = Trace.of(np.zeros(trace.arrival_s.size), trace.prompt_tokens, trace.output_tokens)
    replay = simulate(trace, Windows.none(), model)
    step = model.step
    # a decode is counted as prefill where a prompt's last chunk holds a single token: never here
    work_s = (
        replay.steps * step.base_s
        + (trace.output_tokens - 1).sum() * step.per_decode_s
        + trace.prompt_tokens.sum() * step.per_prefill_token_s
    )
    end_s = replay.last_token_s.max() - model.client_overhead_s
    assert end_s == pytest.approx(work_s, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(case=cases())
def test_where_all_arrive_at_once_a_window_delays_or_leaves_every_token(make_model, case):
    trace, windows, limits = case
    model = make_model(**(limits | {"contention": ({"factor": 1.5}, {"factor": 3}, {"factor": 1})}))
    windows = Windows.of(windows.start_s, windows.end_s, windows.phase)
    trace = Trace.of(np.zeros(trace.arrival_s.size), trace.prompt_tokens, trace.output_tokens)
    plain = simulate(trace, Windows.none(), model, chunks=True)
    slowed = simulate(trace, windows, model, chunks=True)
    assert (slowed.token_s >= plain.token_s - TOLERANCE_S).all()


def test_first_tokens_come_in_the_order_of_arrival(make_model):
    rng = np.random.default_rng(8)
    trace = Trace.of(np.sort(rng.uniform(0, 100, 200)), np.full(200, 7), rng.integers(1, 20, 200))
    replay = simulate(trace, Windows.none(), make_model(max_num_batched_tokens=16))
    assert (np.diff(replay.first_token_s) >= 0).all()


def test_the_fast_path_gives_the_latencies_of_each_schedule(make_model):
    rng = np.random.default_rng(5)
    trace = Trace.of(np.sort(rng.uniform(0, 100, 50)), np.full(50, 7), np.full(50, 9))
    schedules = [Windows.none(), Windows.planned([3, 40], 8), Windows.planned([20], 8)]
    model = make_model(overhead_s=0.25)
    fast = latencies(trace, schedules, model)
    assert fast.e2e_s.shape == fast.ttft_s.shape == (3, 50)
    for row, windows in enumerate(schedules):
        replay = simulate(trace, windows, model)
        np.testing.assert_array_equal(fast.e2e_s[row], replay.done_s - trace.arrival_s)
        np.testing.assert_array_equal(fast.ttft_s[row], replay.first_token_s - trace.arrival_s)
    assert (fast.e2e_s[0] != fast.e2e_s[1]).any()
    np.testing.assert_array_equal(latencies(trace, schedules, model, threads=2).e2e_s, fast.e2e_s)


@settings(max_examples=150, deadline=None)
@given(case=cases(), cuts=st.sets(st.integers(1, 19), max_size=6))
def test_a_trace_in_parts_gives_what_it_gives_whole(make_model, case, cuts):
    trace, windows, limits = case
    model = make_model(**limits)
    size = trace.arrival_s.size
    edges = [0, *sorted(cut for cut in cuts if cut < size), size]
    parts = [trace.rows(slice(*pair)) for pair in pairwise(edges)]
    whole = simulate(trace, windows, model)
    replays = list(simulate_stream(parts, windows, model))
    request_id = np.concatenate([replay.trace.request_id for replay in replays])
    back = np.argsort(request_id)
    np.testing.assert_array_equal(request_id[back], trace.request_id)
    for name in ("first_token_s", "last_token_s"):
        found = np.concatenate([getattr(replay, name) for replay in replays])
        np.testing.assert_array_equal(found[back], getattr(whole, name))
    assert sum(replay.steps for replay in replays) == whole.steps
    assert sum(replay.preemptions for replay in replays) == whole.preemptions
    assert replays[-1].most_sequences == whole.most_sequences


def test_a_part_holds_what_was_done_before_the_next_begins(make_model):
    # the first takes from 0 to 9.5; the second part begins at 5
    parts = [Trace.of([0], [8], [7], [0]), Trace.of([5], [8], [1], [1]), Trace.of([60], [8], [1])]
    replays = list(simulate_stream(parts, Windows.none(), make_model()))
    assert [replay.trace.request_id.tolist() for replay in replays] == [[0, 1], [0]]
    assert replays[0].most_sequences == 2


def test_parts_out_of_order_are_refused(make_model):
    parts = [Trace.of([0, 7], [8, 8], [1, 1]), Trace.of([5], [8], [1])]
    with pytest.raises(ValueError, match=r"begins at 5 s, before the last arrival .* at 7 s"):
        list(simulate_stream(parts, Windows.none(), make_model()))


def test_a_replay_is_the_same_every_time(make_model):
    trace = Trace.of([0.0, 0.1, 0.7], [9, 5, 3], [4, 8, 2])
    windows = Windows.of([1], [3])
    one, other = (simulate(trace, windows, make_model(), chunks=True) for _ in range(2))
    np.testing.assert_array_equal(one.token_s, other.token_s)
