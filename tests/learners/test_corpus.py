from itertools import chain

import numpy as np
import pytest

from safesync.learners.corpus import (
    BLOCK,
    HELD_OUT_EVERY,
    SLOTS,
    held_out,
    shard,
    slot_of,
    standard_library,
)


def numbered(blocks: int) -> np.ndarray:
    """A corpus in which every block holds its own number, and a rest that fills none."""
    numbers = np.arange(blocks, dtype=np.uint32).view(np.uint8).reshape(blocks, 4)
    corpus = np.repeat(numbers[:, None, :], BLOCK // 4, axis=1).ravel()
    return np.concatenate([corpus, np.full(100, 255, dtype=np.uint8)])


def blocks_of(part: np.ndarray) -> list[int]:
    assert len(part) % BLOCK == 0
    rows = part.view(np.uint32).reshape(-1, BLOCK // 4)
    assert (rows == rows[:, :1]).all()
    return rows[:, 0].tolist()


@pytest.mark.parametrize("islands", [1, 3, 8])
def test_every_block_belongs_to_exactly_one_island_of_one_slot_or_is_held_out(islands):
    corpus = numbered(1_000)
    parts = [
        blocks_of(shard(corpus, slot, 8, island, islands))
        for slot in range(8)
        for island in range(islands)
    ]
    parts.append(blocks_of(held_out(corpus)))
    assert sorted(chain(*parts)) == list(range(1_000))
    assert len(parts[-1]) == 1_000 // HELD_OUT_EVERY
    sizes = [len(part) for part in parts[:-1]]
    assert max(sizes) - min(sizes) <= 2


def test_slots_do_not_meet_even_with_other_numbers_of_islands():
    corpus = numbered(1_000)
    one = {block for island in range(8) for block in blocks_of(shard(corpus, 2, 8, island, 8))}
    other = {block for island in range(3) for block in blocks_of(shard(corpus, 5, 8, island, 3))}
    assert one and other and not one & other


def test_slots_are_told_by_role_and_place_and_roles_share_none():
    places = {role: [slot_of(role, place) for place in range(20)] for role in ("judge", "parity")}
    assert places["judge"][:10] == list(range(10))
    assert places["parity"][:6] == list(range(10, SLOTS))
    # the eleventh judge seed, and the seventh of parity, read what the first does
    assert places["judge"][10:] == places["judge"][:10]
    assert places["parity"][6:12] == places["parity"][:6]


def test_the_standard_library_is_large_text_and_the_same_each_time():
    corpus = standard_library()
    assert len(corpus) > 5_000_000
    assert corpus == standard_library()
    assert b"import os" in corpus
    assert b"class TestCase(object):" in corpus  # unittest is there, the library's own tests not
