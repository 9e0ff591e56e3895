import pytest
import torch

from safesync.outer import Fragment
from safesync.sidecar.contend.cursor import Cursor, Share
from safesync.sidecar.contend.island import Island
from safesync.sidecar.contend.pace import Pace


def _pace(whole_s=0.08, part_s=0.01):
    pace = Pace()
    pace.observe(Share.WHOLE, whole_s)
    pace.observe(Share.PART, part_s)
    return pace


@pytest.mark.parametrize(
    ("left_s", "at_boundary", "share"),
    [
        (5.0, True, Share.WHOLE),
        (0.161, True, Share.WHOLE),
        (0.159, True, Share.PART),
        (5.0, False, Share.PART),
        (0.006, True, Share.PART),
        (0.004, True, Share.NONE),
        (-1.0, True, Share.NONE),
    ],
)
def test_share_follows_from_what_is_left(left_s, at_boundary, share):
    assert _pace().choose(left_s, at_boundary) is share


def test_only_the_last_three_rounds_count():
    pace = _pace(whole_s=100.0)
    for _ in range(3):
        pace.observe(Share.WHOLE, 0.3)
    assert pace.choose(0.61, True) is Share.WHOLE
    assert pace.choose(0.59, True) is Share.PART


@pytest.mark.parametrize("slowdown", [1.0, 3.0])
def test_simulated_window_ends_within_half_a_part(slowdown):
    pace, cursor = _pace(), Cursor(1000, 80)
    left_s, part_s = 4.0, 0.01 * slowdown
    while (share := pace.choose(left_s, cursor.at_boundary)) is not Share.NONE:
        duration_s = part_s * cursor.take(share).size / 10
        pace.observe(share, duration_s)
        left_s -= duration_s
    assert abs(left_s) <= part_s / 2 + 1e-9


def test_wholes_walk_the_model_in_order_and_begin_again():
    cursor = Cursor(20, 8)
    taken = [cursor.take(Share.WHOLE) for _ in range(4)]
    assert taken == [Fragment(0, 8), Fragment(8, 16), Fragment(16, 20), Fragment(0, 8)]


def test_parts_finish_the_fragment_that_they_began():
    cursor = Cursor(30, 20)
    sizes, boundaries = [], []
    for _ in range(12):
        boundaries.append(cursor.at_boundary)
        sizes.append(cursor.take(Share.PART).size)
    assert sizes == [3] * 6 + [2] + [3] * 3 + [1] + [3]
    assert [turn for turn, boundary in enumerate(boundaries) if boundary] == [0, 7, 11]


@pytest.mark.parametrize("size", [1000, 65_536, 150_000])
def test_island_moves_a_fragment_differently_per_rank_and_round(size):
    outer = torch.linspace(-1, 1, size)
    islands = [Island(rank, torch.device("cpu")) for rank in (0, 1)]
    inners = torch.empty(2, 2, size)
    for turn in range(2):
        for rank, island in enumerate(islands):
            island.train_(outer, inners[turn, rank])
    change = inners - 0.99 * outer
    assert torch.isfinite(inners).all()
    assert 0.0008 < change.std() < 0.0012
    flat = change.view(4, size)
    assert all(not torch.equal(flat[a], flat[b]) for a in range(4) for b in range(a))


def test_island_keeps_the_model_bounded():
    island, values = Island(0, torch.device("cpu")), torch.ones(500)
    for _ in range(2000):
        island.train_(values.clone(), values)
    assert values.abs().max() < 0.1
