import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from safesync.learners.data import Stream, windows

CONTEXT, BATCH = 8, 3
# every position is told by its value, up to 251 of them
SHARD = (np.arange(200) % 251).astype(np.uint8)


def stream(seed=0, shard=SHARD):
    return Stream(shard, context=CONTEXT, batch=BATCH, seed=seed)


def starts(batch: torch.Tensor) -> list[int]:
    return batch[:, 0].tolist()


def epoch(source: Stream) -> list[int]:
    return [start for _ in range(7) for start in starts(source.next())]


def test_a_window_is_a_run_of_the_shard():
    batch = stream().next()
    assert batch.shape == (BATCH, CONTEXT + 1)
    assert batch.dtype == torch.int64
    assert (batch.diff(dim=1) == 1).all()


def test_an_epoch_takes_no_window_twice_and_nearly_all():
    source = stream()
    seen = epoch(source)
    assert len(set(seen)) == 21  # of 23 windows: what is too few for a batch is left out
    assert len({start % CONTEXT for start in seen}) == 1


def test_epochs_and_seeds_differ_in_order_and_phase():
    source = stream()
    epochs = [epoch(source) for _ in range(12)]
    assert len({tuple(order) for order in epochs}) == 12
    assert len({order[0] % CONTEXT for order in epochs}) > 1
    assert starts(stream(1).next()) != starts(stream(2).next())
    assert starts(stream(1).next()) == starts(stream(1).next())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 30), st.integers(0, 30))
def test_a_stream_is_taken_up_where_another_stood(taken, elsewhere):
    one, other = stream(seed=3), stream(seed=3)
    for _ in range(taken):
        one.next()
    for _ in range(elsewhere):
        other.next()
    other.restore(one.state)
    for _ in range(10):
        assert torch.equal(one.next(), other.next())


def test_a_shard_without_one_batch_is_refused():
    with pytest.raises(ValueError, match="batch 3: a shard of 20 bytes has only 0 windows of 8"):
        stream(shard=SHARD[:20])


@pytest.mark.parametrize(("tokens", "count"), [(1, 1), (16, 2), (17, 2), (10_000, 24)])
def test_held_out_windows_predict_as_many_tokens_as_asked_for(tokens, count):
    found = windows(SHARD, context=CONTEXT, tokens=tokens)
    assert found.shape == (count, CONTEXT + 1)
    assert starts(found) == list(range(0, count * CONTEXT, CONTEXT))
    assert (found.diff(dim=1) == 1).all()
