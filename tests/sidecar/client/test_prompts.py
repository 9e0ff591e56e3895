"""Prompts are unique by construction (docs/load-generator.md 18, 19)."""

import numpy as np
import pytest

from safesync.sidecar.client.prompts import prompt_tokens

SMOLLM2 = (17, 49_152)
SMALLEST = (1000, 1256)


def first_blocks(seed, ids, requests=2000):
    return {tuple(prompt_tokens(seed, number, 16, ids)) for number in range(requests)}


@pytest.mark.parametrize("ids", [SMOLLM2, SMALLEST])
def test_case_18_two_clients_share_no_first_block(ids):
    """Two workers with one seed sent equal prompts (vllm#54227); the first block holds the seed."""
    one, other = first_blocks(1, ids), first_blocks(2, ids)
    assert len(one) == len(other) == 2000
    assert not one & other


def test_case_18_requests_differ_from_the_first_token_on():
    """Random draws of one token collide after some 250 of 49,000 ids; these never do."""
    first = {prompt_tokens(1, number, 1, SMOLLM2)[0] for number in range(20_000)}
    assert len(first) == 20_000


def test_case_18_a_prompt_is_the_same_every_time():
    assert prompt_tokens(5, 9, 300, SMOLLM2) == prompt_tokens(5, 9, 300, SMOLLM2)


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 1000])
def test_case_19_lengths_and_range_are_exact(length):
    for ids in (SMOLLM2, SMALLEST):
        prompt = np.array(prompt_tokens(2**62, 2**62 + 1, length, ids))
        assert prompt.shape == (length,)
        assert prompt.min() >= ids[0]
        assert prompt.max() < ids[1]
