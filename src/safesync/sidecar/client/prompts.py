"""Prompts as token ids, unique by construction, and the request bodies that carry them."""

import json
import math

import numpy as np

_ID_BITS = 63  # of a request_id, and of a seed


def prompt_tokens(seed: int, request_id: int, length: int, ids: tuple[int, int]) -> list[int]:
    """Return ``length`` token ids in ``[ids[0], ids[1])`` that no other request shares.

    The prompt opens with the digits of ``request_id``, then those of ``seed``, in base
    ``ids[1] - ids[0]``, lowest first (10 tokens with 49,000 ids, 16 with 256); the rest is drawn
    from ``SeedSequence([seed, request_id])``. So two requests of one client differ from the first
    token on (ids that are equal modulo the base: from a later digit on), and two clients with
    different seeds never have a first block of 16 tokens in common. A prompt too short for all
    digits keeps the leading ones.
    """
    low, high = ids
    base = high - low
    digits = math.ceil(_ID_BITS / math.log2(base))
    head = (_digits(request_id, base, digits) + _digits(seed, base, digits))[:length]
    rng = np.random.default_rng(np.random.SeedSequence([seed, request_id]))
    tail = rng.integers(low, high, size=length - len(head))
    return [low + digit for digit in head] + tail.tolist()


def request_body(model: str, prompt: list[int], output_tokens: int) -> bytes:
    """Return the JSON body of one streaming ``/v1/completions`` request."""
    return json.dumps(
        {
            "model": model,
            "prompt": prompt,
            "max_tokens": output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        },
        separators=(",", ":"),
    ).encode()


def _digits(number: int, base: int, count: int) -> list[int]:
    digits = []
    for _ in range(count):
        number, digit = divmod(number, base)
        digits.append(digit)
    return digits
