"""Engine steps out of chunk times, against the engine's own."""

import numpy as np
import pytest
from emulator.client import late

from safesync.emulator import Trace, Windows, simulate
from safesync.emulator.iterations import iterations

BUDGET = 100


@pytest.fixture(scope="module")
def replay(make_model):
    rng = np.random.default_rng(17)
    size = 200
    trace = Trace.of(
        np.sort(rng.uniform(0, 40, size)), rng.integers(5, 60, size), rng.integers(1, 25, size)
    )
    step = {"base_s": 0.02, "per_decode_s": 0.003, "per_prefill_token_s": 0.0005}
    return simulate(trace, Windows.none(), make_model(step=step, max_num_seqs=64), chunks=True)


def truth(replay):
    """Return (ends, decodes, prefill tokens, context) of the steps that handed out a token."""
    trace = replay.trace
    token = np.concatenate([np.arange(tokens) for tokens in trace.output_tokens])
    owner = np.repeat(np.arange(trace.arrival_s.size), trace.output_tokens)
    ends, step = np.unique(replay.token_s, return_inverse=True)
    opening = token == 0
    cached = trace.prompt_tokens[owner] + token - 1
    return (
        ends,
        np.bincount(step[~opening], minlength=ends.size),
        np.bincount(step[opening], trace.prompt_tokens, minlength=ends.size),
        np.bincount(step[~opening], cached[~opening], minlength=ends.size),
    )


def test_the_steps_are_those_of_the_engine(replay):
    ends, decodes, prefill, context = truth(replay)
    steps = iterations(replay.to_requests(), BUDGET)
    np.testing.assert_allclose(steps.end_s, ends, atol=1e-6)
    np.testing.assert_array_equal(steps.decodes, decodes)
    np.testing.assert_array_equal(steps.prefill_tokens, prefill)
    np.testing.assert_array_equal(steps.context_tokens, context)
    seen = np.isfinite(steps.start_s)
    np.testing.assert_array_equal(seen, decodes > 0)
    np.testing.assert_allclose(steps.start_s[seen], ends[np.flatnonzero(seen) - 1], atol=1e-6)


def test_a_late_client_does_not_blur_the_steps(replay):
    # 8 ms late on average, at steps of 28 ms: gaps above 10 ms find 70 steps too many
    ends, decodes, _, _ = truth(replay)
    steps = iterations(late(replay.to_requests(), 0.008), BUDGET)
    assert abs(steps.end_s.size - ends.size) <= 2
    assert abs(steps.decodes.sum() - decodes.sum()) <= 2
    assert (np.diff(steps.end_s) >= 0).all()
    durations = steps.duration_s[np.isfinite(steps.start_s)]
    assert durations.mean() == pytest.approx(np.diff(ends)[decodes[1:] > 0].mean(), rel=0.01)


def test_a_chunk_of_two_tokens_counts_for_two_steps(replay):
    ends, decodes, _, _ = truth(replay)
    rows = replay.to_requests()
    for at in np.flatnonzero(rows["output_tokens"] > 6)[::5]:
        rows.at[at, "chunk_s"] = np.delete(rows.at[at, "chunk_s"], 4)
        rows.at[at, "chunk_tokens"] = np.array(
            [1, 1, 1, 1, 2] + [1] * (len(rows.at[at, "chunk_s"]) - 5)
        )
    steps = iterations(rows, BUDGET)
    np.testing.assert_array_equal(steps.decodes, decodes)
    assert np.abs(steps.end_s - ends).max() < 0.03


def test_steps_that_may_hold_a_part_of_a_prompt_are_marked(make_model):
    # 25 prompt tokens at 10 a step: the steps of A that carry B's chunks cannot be told apart
    model = make_model(max_num_batched_tokens=10)
    trace = Trace.of([0, 0.1, 60], [4, 25, 4], [12, 2, 3])
    rows = simulate(trace, Windows.none(), model, chunks=True).to_requests()
    steps = iterations(rows, 10)
    at = int(np.flatnonzero(steps.prefill_tokens == 25)[0])
    assert not steps.whole[at - 3 : at + 1].any()
    assert steps.whole[at + 1 :].all()


def test_captures_without_chunks_are_refused(replay):
    rows = replay.to_requests()
    with pytest.raises(ValueError, match="no successful request has chunk times"):
        iterations(rows.assign(status="error"), BUDGET)
    rows.at[3, "chunk_tokens"] = np.full(len(rows.at[3, "chunk_tokens"]), -1)
    with pytest.raises(ValueError, match=r"request 3 has .* expected the server's usage"):
        iterations(rows, BUDGET)
