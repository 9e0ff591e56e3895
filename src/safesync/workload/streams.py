"""Random streams that are named, so that no two uses of a seed can share one."""

import hashlib
import json

import numpy as np


def stream(*key: str | int) -> np.random.Generator:
    """Return the generator that belongs to ``key``, the same on every machine and in every run.

    ``key`` is any sequence of names and integers, e.g. ``("arrivals", regime, seed)``. Its
    SHA-256 is the entropy of a ``numpy.random.SeedSequence``, so that streams of different keys
    are independent for all practical purposes, also those of neighbouring seeds.
    """
    text = json.dumps(key, ensure_ascii=True)
    entropy = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
