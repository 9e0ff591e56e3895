from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safesync.learners.turns import Turn, turns


def test_a_blocking_merge_is_one_turn_that_is_applied_at_once():
    assert turns((3, 6, 9, 12), 1, 0) == [Turn(0, 3, 3), Turn(0, 6, 6), Turn(0, 9, 9)]


@pytest.mark.parametrize(
    ("delay_steps", "applied"),
    [
        (0, [10, 15, 20, 23]),
        (2, [12, 17, 22, 25]),
        (3, [13, 18, 23, None]),  # the training ends at 26
        (50, [20, 23, None, None]),  # the fragments are taken again at 20 and 23
    ],
)
def test_turns_by_hand(delay_steps, applied):
    found = turns((10, 20, 26), 2, delay_steps)
    assert [turn.fragment for turn in found] == [0, 1, 0, 1]
    assert [turn.taken for turn in found] == [10, 15, 20, 23]
    assert [turn.applied for turn in found] == applied


def test_more_fragments_than_steps_share_a_step():
    assert turns((4, 6), 3, 9) == [Turn(0, 4, None), Turn(1, 4, None), Turn(2, 5, None)]


def test_a_training_that_only_closes_has_no_turn():
    assert turns((12,), 2, 1) == []


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=8, unique=True).map(sorted),
    st.integers(1, 9),
    st.integers(0, 60),
)
def test_turns_follow_one_another(merges, fragments, delay_steps):
    found = turns(merges, fragments, delay_steps)
    assert len(found) == fragments * (len(merges) - 1)
    taken = [turn.taken for turn in found]
    assert taken == sorted(taken)
    for number, (start, end) in enumerate(pairwise(merges)):
        mine = found[number * fragments : (number + 1) * fragments]
        assert [turn.fragment for turn in mine] == list(range(fragments))
        assert mine[0].taken == start
        assert mine[-1].taken < end
    for fragment in range(fragments):
        mine = [turn for turn in found if turn.fragment == fragment]
        for one, other in pairwise(mine):
            assert one.taken <= one.applied <= other.taken
            assert one.taken < other.taken
            assert one.applied - one.taken == min(delay_steps, other.taken - one.taken)
        for last in mine[-1:]:
            late = last.taken + delay_steps
            assert last.applied == (late if late < merges[-1] else None)
