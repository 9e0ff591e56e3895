"""Steps vLLM's own scheduler, without a model, through the cases on stdin.

A process of its own, because importing vLLM changes the process that does it.
Results: results.json in the folder given. `main` and `drive` name the fields.
"""

import json
import sys
from pathlib import Path

import torch
from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "max_position_embeddings": 1024,
    "vocab_size": 128,
}


def make_scheduler(model, limits):
    whole = VllmConfig(
        scheduler_config=SchedulerConfig(
            max_num_seqs=limits["max_num_seqs"],
            max_num_batched_tokens=limits["max_num_batched_tokens"],
            max_model_len=limits["max_model_len"],
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        model_config=model,
        cache_config=CacheConfig(block_size=limits["block_size"], enable_prefix_caching=False),
    )
    blocks = limits["kv_blocks"] + 1  # vLLM keeps one as its null block
    whole.cache_config.num_gpu_blocks = blocks
    attention = FullAttentionSpec(
        block_size=limits["block_size"], num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    return Scheduler(
        vllm_config=whole,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], attention)],
        ),
        structured_output_manager=StructuredOutputManager(whole),
        block_size=limits["block_size"],
    )


def request_of(case, at):
    return Request(
        request_id=str(at),
        prompt_token_ids=list(range(case["prompt"][at])),
        sampling_params=SamplingParams(ignore_eos=True, max_tokens=case["output"][at]),
        pooling_params=None,
    )


def composition(output, requests):
    """Return (decodes, prefill tokens, context tokens) of a step."""
    decodes = prefill = context = 0
    for name, tokens in output.num_scheduled_tokens.items():
        request = requests[name]
        computed = request.num_computed_tokens - tokens  # schedule() has advanced it
        context += computed
        if request.num_output_tokens > 0 and request.num_tokens - computed == 1:
            decodes += 1
        else:
            prefill += tokens
    return decodes, prefill, context


def drive(scheduler, case):
    """Return {token_s: of each request, steps, preemptions} for one case."""
    ready, step, size = case["ready_s"], case["step"], len(case["ready_s"])
    token_s = [[] for _ in range(size)]
    now, arrived, steps, preemptions = ready[0], 0, 0, 0
    while sum(map(len, token_s)) < sum(case["output"]):
        if not scheduler.running and not scheduler.waiting:
            now = max(now, ready[arrived])
        while arrived < size and ready[arrived] <= now:
            scheduler.add_request(request_of(case, arrived))
            arrived += 1
        known = dict(scheduler.requests)
        output = scheduler.schedule()
        steps += 1
        preemptions += len(output.preempted_req_ids or ())
        decodes, prefill, context = composition(output, known)
        now += (
            step["base_s"]
            + step["per_decode_s"] * decodes
            + step["per_prefill_token_s"] * prefill
            + step["per_context_token_s"] * context
        )
        names = list(output.num_scheduled_tokens)
        ready_for_token = [known[n].num_computed_tokens >= known[n].num_tokens for n in names]
        sampled = [[7] if emits else [] for emits in ready_for_token]
        for name, tokens in zip(names, sampled, strict=True):
            token_s[int(name)] += [now] * len(tokens)
        ran = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: at for at, name in enumerate(names)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        scheduler.update_from_output(output, ran)
    return {"token_s": token_s, "steps": steps, "preemptions": preemptions}


def main(folder):
    """Read cases of {ready_s, prompt, output, limits, step}; write what `drive` returns."""
    (folder / "config.json").write_text(json.dumps(LLAMA))
    model = ModelConfig(
        model=str(folder), skip_tokenizer_init=True, dtype="bfloat16", max_model_len=1000
    )
    cases = json.loads(sys.stdin.read())
    results = [drive(make_scheduler(model, case["limits"]), case) for case in cases]
    (folder / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
