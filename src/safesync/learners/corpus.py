"""The corpus: the standard library's own sources as bytes, cut into parts that never overlap.

It is cut into blocks. Every 32nd is held out; the others are dealt in turn to the seeds' slots,
and a slot's to its islands, so that every part is a fair sample of the whole.
"""

import sysconfig
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import numpy as np

BLOCK = 8_192
HELD_OUT_EVERY = 32
_FEWEST_SLOTS = 8
# not every distribution ships them
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


def standard_library() -> bytes:
    """Return the standard library's ``.py`` files, one after the other by path."""
    root = Path(sysconfig.get_path("stdlib"))
    files = sorted(path.relative_to(root) for path in root.rglob("*.py"))
    return b"".join((root / file).read_bytes() for file in files if not _LEFT_OUT & {*file.parts})


def slot_of(seed: int, seeds: Iterable[int]) -> tuple[int, int]:
    """Return the slot of ``seed`` and how many there are: no two of ``seeds`` share one.

    A seed prefers the slot that its hash names, and takes the next free one when an earlier seed
    has that, so that a further seed rarely moves another. There are eight slots, doubled until
    all seeds have one. Raises ValueError for a seed that is not among ``seeds``.
    """
    seeds = list(dict.fromkeys(seeds))
    slots = _FEWEST_SLOTS
    while slots < len(seeds):
        slots *= 2
    taken: dict[int, int] = {}
    for one in seeds:
        place = int(sha256(str(one).encode()).hexdigest(), 16) % slots
        while place in taken:
            place = (place + 1) % slots
        taken[place] = one
        if one == seed:
            return place, slots
    raise ValueError(f"seed {seed} is not among the run's seeds {seeds}")


def shard(corpus: np.ndarray, slot: int, slots: int, island: int, islands: int) -> np.ndarray:
    """Return what one island trains on: bytes, shape (length,), uint8.

    ``corpus``: uint8. Shards of different slots or islands share no block, with each other or with
    ``held_out``.
    """
    blocks = _blocks(corpus)
    training = np.delete(blocks, np.s_[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY], axis=0)
    return training[slot::slots][island::islands].ravel()


def held_out(corpus: np.ndarray) -> np.ndarray:
    """Return the bytes that no island trains on: shape (length,), uint8."""
    return _blocks(corpus)[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY].ravel()


def _blocks(corpus: np.ndarray) -> np.ndarray:
    count = len(corpus) // BLOCK
    return corpus[: count * BLOCK].reshape(count, BLOCK)
