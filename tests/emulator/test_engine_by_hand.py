"""Schedules that were computed by hand: a step takes 1 + decodes / 4 + prefill tokens / 8 s."""

import numpy as np
import pytest

from safesync.emulator import Trace, Windows, simulate


def times(replay):
    return [replay.first_token_s.tolist(), replay.last_token_s.tolist()]


def test_one_request(make_model):
    # prefill of 8: 2 s; two decodes of 1.25 s
    replay = simulate(Trace.of([5.0], [8], [3]), Windows.none(), make_model(), chunks=True)
    assert replay.token_s.tolist() == [7.0, 8.25, 9.5]
    assert times(replay) == [[7.0], [9.5]]
    assert (replay.steps, replay.preemptions) == (3, 0)


def test_the_client_overhead_comes_on_top(make_model):
    replay = simulate(Trace.of([5.0], [8], [3]), Windows.none(), make_model(overhead_s=0.5))
    assert times(replay) == [[7.5], [10.0]]


def test_an_idle_engine_waits_for_the_next_arrival(make_model):
    replay = simulate(Trace.of([0, 50], [8, 8], [1, 1]), Windows.none(), make_model())
    assert times(replay) == [[2.0, 52.0], [2.0, 52.0]]


def test_a_request_joins_the_batch_at_the_next_step(make_model):
    # A: 0 to 2. B arrives at 1, joins at 2: 1 decode, 16 prefill: 3.25 s. Then 2 decodes: 1.5
    replay = simulate(Trace.of([0, 1], [8, 16], [3, 2]), Windows.none(), make_model(), chunks=True)
    assert replay.token_s.tolist() == [2.0, 5.25, 6.75, 5.25, 6.75]


def test_an_arrival_at_the_instant_of_a_step_joins_it(make_model):
    replay = simulate(Trace.of([0, 2], [8, 8], [2, 1]), Windows.none(), make_model())
    assert times(replay) == [[2.0, 4.25], [4.25, 4.25]]
    # also in the middle of a run of decodes: A emits at 2, 3.25, and with B in the batch at 5.5
    replay = simulate(Trace.of([0, 3.25], [8, 8], [6, 1]), Windows.none(), make_model())
    assert times(replay) == [[2.0, 5.5], [9.25, 5.5]]


def test_a_long_prompt_is_computed_in_chunks(make_model):
    # 10 + 10 + 4 tokens: 2.25 + 2.25 + 1.5 s, then one decode
    model = make_model(max_num_batched_tokens=10)
    replay = simulate(Trace.of([0], [24], [2]), Windows.none(), model)
    assert times(replay) == [[6.0], [7.25]]


def test_decodes_go_before_chunks_of_later_prompts(make_model):
    # A alone: 1.5. A decodes, B gets the other 9: 2.375. A decodes, B gets its last 3: 1.625.
    model = make_model(max_num_batched_tokens=10)
    replay = simulate(Trace.of([0, 0.1], [4, 12], [3, 1]), Windows.none(), model, chunks=True)
    assert replay.token_s.tolist() == [1.5, 3.875, 5.5, 5.5]


def test_beyond_max_num_seqs_requests_wait_first_come_first_served(make_model):
    # the short third request does not overtake the long second
    model = make_model(max_num_seqs=1)
    replay = simulate(Trace.of([0, 0.1, 0.2], [8, 80, 8], [1, 1, 1]), Windows.none(), model)
    assert times(replay)[1] == [2.0, 13.0, 15.0]


def test_the_last_admitted_is_preempted_and_computes_everything_again(make_model):
    # 4 blocks of 4. A takes 2, B 2; both emit at 2.875. A's 9th token needs a third block: B goes.
    # A alone until its 6th token: five decodes, 9.125. B: 7 prompt + 1 own = 8 again, 11.125.
    model = make_model(block_size=4, kv_blocks=4)
    trace = Trace.of([0, 0], [8, 7], [6, 4])
    replay = simulate(trace, Windows.none(), model, chunks=True)
    assert replay.preemptions == 1
    first = [2.875, 4.125, 5.375, 6.625, 7.875, 9.125]
    assert replay.token_s.tolist() == [*first, 2.875, 11.125, 12.375, 13.625]


def test_a_preempted_request_keeps_its_place_before_all_waiting_ones(make_model):
    # C would fit into the one free block from 4.125 on, but B is first: both enter at 9.125
    model = make_model(block_size=4, kv_blocks=4)
    trace = Trace.of([0, 0, 3], [8, 7, 4], [6, 4, 1])
    replay = simulate(trace, Windows.none(), model)
    assert times(replay) == [[2.875, 2.875, 11.625], [9.125, 14.125, 11.625]]


def test_a_prompt_enters_only_if_it_fits_whole(make_model):
    # B's first chunk would fit beside A (3 of 4 blocks), its 8 tokens do not: it waits for A
    model = make_model(block_size=4, kv_blocks=4, max_num_batched_tokens=9)
    trace = Trace.of([0, 0], [9, 8], [2, 1])
    replay = simulate(trace, Windows.none(), model)
    assert times(replay) == [[2.125, 5.375], [3.375, 5.375]]


def test_the_context_costs_by_cached_token(make_model):
    # 2.0, then decodes that read 8 and 9 cached tokens at 0.5 s each
    model = make_model(step={"per_context_token_s": 0.5})
    replay = simulate(Trace.of([0], [8], [3]), Windows.none(), model, chunks=True)
    assert replay.token_s.tolist() == [2.0, 2.0 + 5.25, 2.0 + 5.25 + 5.75]


def test_a_step_across_an_edge_is_slowed_only_for_its_part_inside(make_model):
    # window [1, 4), factor 2. Work 2: 1 before, 1 at half rate: 3.0.
    # Work 1.25: 0.5 until 4, 0.75 after: 4.75. Work 1.25: 6.0.
    windows = Windows.of([1], [4])
    replay = simulate(Trace.of([0], [8], [3]), windows, make_model(), chunks=True)
    assert replay.token_s.tolist() == [3.0, 4.75, 6.0]


def test_a_step_can_span_whole_windows(make_model):
    # 0.5 + 0.25 + 0.25 + 0.25 of the work by 1.75; the other 0.75 after
    windows = Windows.of([0.5, 1.25], [1.0, 1.75])
    replay = simulate(Trace.of([0], [8], [1]), windows, make_model())
    assert times(replay)[1] == [2.5]


def test_contention_can_grow_with_the_batch(make_model):
    # 2 s of work at factor 2 + 0.5
    model = make_model(contention=({"factor": 2.0, "per_sequence": 0.5},))
    replay = simulate(Trace.of([0, 0], [4, 4], [1, 1]), Windows.of([0], [100]), model)
    assert times(replay)[1] == [5.0, 5.0]


def test_a_step_inside_is_delayed_once_however_long(make_model):
    # 2 s of work and a decode of 1.25 s, half a second more each
    model = make_model(contention=({"factor": 1.0, "delay_s": 0.5},))
    replay = simulate(Trace.of([0], [8], [2]), Windows.of([0], [100]), model)
    assert times(replay) == [[2.5], [4.25]]
    # inside for 1 of 2.5 s: four tenths of its work, and of its delay
    assert times(simulate(Trace.of([0], [8], [1]), Windows.of([0], [1]), model))[1] == [2.2]


def test_a_window_can_contend_more_than_the_model_says(make_model):
    windows = Windows(np.array([0.0]), np.array([100.0]), np.array([0]), np.array([1.5]))
    model = make_model(contention=({"factor": 2.0, "delay_s": 0.5},))
    assert times(simulate(Trace.of([0], [8], [1]), windows, model))[1] == [1.5 * (4 + 0.5)]


def test_the_largest_batch_is_told(make_model):
    trace = Trace.of([0, 1, 1, 90], [8, 8, 8, 8], [3, 2, 2, 1])
    assert simulate(trace, Windows.none(), make_model()).most_sequences == 3
    assert simulate(trace, Windows.none(), make_model(max_num_seqs=2)).most_sequences == 2


def test_each_phase_has_its_own_factor(make_model):
    # half a second of work in the first phase, 1.5 s at factor 4 in the second
    model = make_model(contention=({"phase": "reduce", "factor": 2.0}, {"factor": 4.0}))
    windows = Windows.of([0, 1], [1, 10], phase=[0, 1])
    assert times(simulate(Trace.of([0], [8], [1]), windows, model))[1] == [7.0]


def test_a_window_can_even_end_a_run_sooner(make_model):
    # Apart, B and C take a step each: 2, 4, 6. A delay of A lets C join B's step: 2.5, then 3 s.
    trace = Trace.of([0, 1.9, 2.1], [8, 8, 8], [1, 1, 1])
    apart = simulate(trace, Windows.none(), make_model())
    together = simulate(trace, Windows.of([0], [1]), make_model())
    assert times(apart)[1] == [2.0, 4.0, 6.0]
    assert times(together)[1] == [2.5, 5.5, 5.5]


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_a_window_over_everything_stretches_everything(make_model, factor):
    trace = Trace.of(np.zeros(20), np.arange(1, 21), np.arange(20, 0, -1))
    model = make_model(contention=({"factor": factor},))
    plain = simulate(trace, Windows.none(), model)
    slowed = simulate(trace, Windows.of([0], [1e6]), model)
    np.testing.assert_allclose(slowed.last_token_s, factor * plain.last_token_s, rtol=1e-12)


def test_a_request_that_arrives_inside_a_window_is_seen_later(make_model):
    # inside from its first instant on, but not at its last
    model = make_model(overhead_s=0.25, contention=({"factor": 1.0, "overhead_s": 0.5},))
    trace = Trace.of([5.0, 10.0, 20.0], [8, 8, 8], [1, 1, 1])
    assert times(simulate(trace, Windows.of([5], [10]), model))[1] == [7.75, 12.25, 22.25]


def test_requests_keep_their_order_where_a_window_ends(make_model):
    # A comes at 0.75, seen at 1.25; B comes after the window, at 1, and is not seen before A
    model = make_model(contention=({"factor": 1.0, "overhead_s": 0.5},))
    trace = Trace.of([0.75, 1.0], [8, 8], [1, 1])
    assert times(simulate(trace, Windows.of([0], [1]), model))[1] == [4.25, 4.25]
