"""Sends traces with vLLM's own serving benchmark; started by benchmarks/load.py.

`python benchmarks/load_vllm.py JOB.json`. The `vllm bench serve` command is not needed: its module
is called. The requests carry their own time stamps (vLLM's `self_timed`, what its `timed_trace`
data set does), so that it replays the very trace. Each line on standard input starts the next
trace, and is answered by a line of JSON: per request when it was started, its TTFT and its latency
(seconds; the monotonic clock), how many failed, and the CPU seconds that it all took.
"""

import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path

from vllm.benchmarks.datasets import SampleRequest
from vllm.benchmarks.serve import TaskType, benchmark
from vllm.utils.gc_utils import freeze_gc_heap


def replay(url: str, model: str, trace: list[dict]) -> dict:
    """Send one trace and return what vLLM reports of it."""
    requests = [
        SampleRequest(
            prompt=request["prompt"],
            prompt_len=len(request["prompt"]),
            expected_output_len=request["output_tokens"],
            timestamp=request["arrival_s"],
        )
        for request in trace
    ]
    freeze_gc_heap()  # as its command does
    before_s = time.process_time()
    with contextlib.redirect_stdout(sys.stderr):
        result = asyncio.run(
            benchmark(
                task_type=TaskType.GENERATION,
                endpoint_type="openai",
                api_url=f"{url}/v1/completions",
                base_url=url,
                model_id=model,
                model_name=model,
                tokenizer=None,
                input_requests=requests,
                logprobs=None,
                request_rate=float("inf"),
                burstiness=1.0,
                disable_tqdm=True,
                num_warmups=0,
                profile=False,
                selected_percentile_metrics=["e2el"],
                selected_percentiles=[99.0],
                ignore_eos=True,
                goodput_config_dict={},
                max_concurrency=None,
                lora_modules=None,
                extra_headers=None,
                extra_body={"temperature": 0},
                ready_check_timeout_sec=0,
                self_timed=True,
            )
        )
    return {
        "cpu_s": time.process_time() - before_s,
        "start_s": result["start_times"],
        "ttft_s": result["ttfts"],
        "latency_s": result["latencies"],
        "failed": result["failed"],
    }


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    print("ready", flush=True)
    for trace, _ in zip(job["traces"], sys.stdin, strict=False):
        print(json.dumps(replay(job["url"], job["model"], trace)), flush=True)


if __name__ == "__main__":
    main()
