"""vLLM's own scheduler, stepped without a model, makes the same batches as the engine."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from safesync.emulator import Trace, Windows, simulate

CASES = 200
OVERHEAD_S = 0.3
SETTINGS = {"VLLM_TARGET_DEVICE": "cpu", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}


def random_case(rng, make_model):
    block_size, blocks = int(rng.choice([2, 4, 8, 16])), int(rng.integers(6, 30))
    max_num_seqs, requests = int(rng.integers(1, 9)), int(rng.integers(1, 25))
    model = make_model(
        step={"per_context_token_s": 0.01},
        overhead_s=OVERHEAD_S,
        max_num_seqs=max_num_seqs,
        # vLLM asks for at least one token per sequence
        max_num_batched_tokens=int(rng.integers(max_num_seqs, 40)),
        kv_blocks=blocks,
        block_size=block_size,
    )
    room = block_size * blocks + 1
    output = np.minimum(rng.integers(1, 18, requests), room - 1)
    prompt = np.minimum(rng.integers(1, 14, requests), room - output)
    arrival = np.sort(rng.uniform(0, rng.choice([1, 20, 150]), requests))
    return model, Trace.of(arrival, prompt, output)


@pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="vLLM is not installed")
def test_the_engine_batches_as_vllm_does(make_model, tmp_path):
    rng = np.random.default_rng(3)
    cases = [random_case(rng, make_model) for _ in range(CASES)]
    told = [
        {
            "ready_s": (trace.arrival_s + OVERHEAD_S).tolist(),
            "prompt": trace.prompt_tokens.tolist(),
            "output": trace.output_tokens.tolist(),
            "limits": model.limits.model_dump(),
            "step": model.step.model_dump(),
        }
        for model, trace in cases
    ]
    script = Path(__file__).with_name("vllm_scheduler.py")
    ran = subprocess.run(
        [sys.executable, script, tmp_path],
        input=json.dumps(told),
        env=os.environ | SETTINGS,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    results = json.loads((tmp_path / "results.json").read_text())

    preemptions = 0
    for (model, trace), theirs in zip(cases, results, strict=True):
        ours = simulate(trace, Windows.none(), model, chunks=True)
        expected = np.concatenate(theirs["token_s"])
        np.testing.assert_allclose(ours.token_s, expected, rtol=0, atol=1e-9)
        assert (ours.steps, ours.preemptions) == (theirs["steps"], theirs["preemptions"])
        preemptions += ours.preemptions
    assert preemptions > CASES / 10
