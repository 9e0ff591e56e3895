"""The corpus: the standard library's own sources as bytes, cut into parts that never overlap.

It is cut into blocks. Every 32nd is held out; the others are dealt in turn to the seeds' slots,
and a slot's to its islands, so that every part is a fair sample of the whole.
"""

import sysconfig
from pathlib import Path

import numpy as np

BLOCK = 8_192
HELD_OUT_EVERY = 32
SLOTS = 16
# of each role: the first slot, and how many there are
_SLOTS_OF = {"judge": (0, 10), "parity": (10, 6)}
# not every distribution ships them
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


def standard_library() -> bytes:
    """Return the standard library's ``.py`` files, one after the other by path."""
    root = Path(sysconfig.get_path("stdlib"))
    files = sorted(path.relative_to(root) for path in root.rglob("*.py"))
    return b"".join((root / file).read_bytes() for file in files if not _LEFT_OUT & {*file.parts})


def slot_of(role: str, position: int) -> int:
    """Return the slot, of ``SLOTS``, of the seed at ``position`` in the list of its ``role``.

    ``role``: judge, or parity for training seeds. The place alone decides, so that a further seed
    at the end of a list moves no other. No two roles share a slot. Seeds of one role have slots of
    their own as long as there are some; further ones begin anew, and read the same part in
    batches of their own.
    """
    first, count = _SLOTS_OF[role]
    return first + position % count


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
