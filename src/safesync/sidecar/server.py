"""The sidecar: a vLLM server of its own on a loopback port, or one that already runs."""

import contextlib
import http.client
import json
import os
import secrets
import socket
import statistics
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from safesync.sidecar.processes import Broken, Child, Processes

KEY_VARIABLE = "VLLM_API_KEY"
ATTACHED_KEY_VARIABLE = "SAFESYNC_SIDECAR_API_KEY"


@dataclass
class Server:
    """Where the sidecar answers; ``child`` is None for a server that we did not start."""

    url: str
    name: str
    key: str = field(repr=False)
    child: Child | None = None

    def get(self, path: str, timeout_s: float) -> bytes:
        """Return the body of a GET; raises OSError (urllib's) when there is no good answer."""
        request = urllib.request.Request(self.url + path, headers=self.headers())
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return answer.read()

    def complete(self, prompt: list[int], output_tokens: int, timeout_s: float) -> float:
        """Send one completion and return its latency in seconds."""
        body = {
            "model": self.name,
            "prompt": prompt,
            "max_tokens": output_tokens,
            "ignore_eos": True,
            "temperature": 0,
        }
        request = urllib.request.Request(
            self.url + "/v1/completions",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **self.headers()},
        )
        begin = time.monotonic()
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            answer.read()
        return time.monotonic() - begin

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers that the server asks for."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


def start_server(
    processes: Processes,
    sidecar: dict,
    model: Path,
    name: str,
    cores: list[int],
    log: Path,
    *,
    trust_remote_code: bool = False,
) -> Server:
    """Start the server of config section ``sidecar`` (or attach to ``sidecar["url"]``).

    Raises Broken when vLLM is to serve a ``model`` folder that is not there, or a port is taken.
    """
    if sidecar["url"]:
        key = os.environ.get(ATTACHED_KEY_VARIABLE, "")
        return Server(sidecar["url"].rstrip("/"), name, key)
    port = _port(sidecar["port"])
    key = secrets.token_urlsafe(24)
    if sidecar["command"]:
        filled = {"port": str(port), "model": str(model), "name": name}
        command = [part.format(**filled) for part in sidecar["command"]]
    elif not model.is_dir():
        raise Broken(
            f"{model}: no such folder, though its checksum file is there; run Snakemake with "
            "--forcerun prepare_model"
        )
    else:
        command = vllm_command(sidecar, model, name, port, trust_remote_code=trust_remote_code)
    child = processes.start(
        "the server",
        command,
        log,
        cores=cores,
        environment={KEY_VARIABLE: key, **vllm_environment(sidecar)},
        # vLLM leaves with status 0 when its engine has died
        lasts=True,
    )
    return Server(f"http://127.0.0.1:{port}", name, key, child)


def vllm_command(
    sidecar: dict, model: Path, name: str, port: int, *, trust_remote_code: bool = False
) -> list[str]:
    """Return the command line of vLLM's OpenAI-compatible server; weights are safetensors only."""
    return [
        # the `vllm` command fails with the CPU build, whose distribution has another name
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model), "--served-model-name", name),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--max-model-len", str(sidecar["max_model_len"])),
        *("--max-num-seqs", str(sidecar["max_num_seqs"])),
        *("--dtype", sidecar["dtype"], "--load-format", "safetensors"),
        *("--enforce-eager", "--disable-uvicorn-access-log"),
        *(["--trust-remote-code"] if trust_remote_code else []),
        *sidecar["extra_args"],
    ]


def vllm_environment(sidecar: dict) -> dict[str, str]:
    """Return the variables that vLLM is started with: loopback only, no calls home."""
    shared = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_HOST_IP": "127.0.0.1",
    }
    if sidecar["device"] == "cpu":
        shared["VLLM_TARGET_DEVICE"] = "cpu"
        shared["VLLM_CPU_KVCACHE_SPACE"] = f"{sidecar['kv_cache_gib']:g}"
    return shared


def wait_healthy(processes: Processes, server: Server, timeout_s: float) -> float:
    """Return the seconds until /health answered; raises Broken when it dies or stays silent."""
    begin = time.monotonic()
    while time.monotonic() - begin < timeout_s:
        processes.check()
        with contextlib.suppress(OSError, http.client.HTTPException):
            server.get("/health", timeout_s=2)
            return time.monotonic() - begin
        time.sleep(0.25)
    raise Broken(
        f"the server at {server.url} did not become healthy within {timeout_s:g} s"
        f"{_where_it_writes(server)}"
    )


def warm_up(
    processes: Processes, server: Server, warm: dict, prompts, output_tokens: int, timeout_s: float
) -> list[float]:
    """Send rounds of distinct prompts until latencies settle; return each round's median, s.

    ``prompts`` is an iterator of token-id lists. A round is ``warm["batch"]`` requests at once.
    """
    medians: list[float] = []
    with ThreadPoolExecutor(warm["batch"]) as pool:
        while len(medians) < warm["max_rounds"]:
            batch = [next(prompts) for _ in range(warm["batch"])]
            waiting = [pool.submit(server.complete, p, output_tokens, timeout_s) for p in batch]
            try:
                medians.append(statistics.median(future.result() for future in waiting))
            except urllib.error.HTTPError as error:
                said = error.read().decode(errors="replace")
                # a server may repeat the key that it was given, and this goes into logs
                said = (said.replace(server.key, "***") if server.key else said)[:300]
                raise Broken(f"the server refused a warm-up request ({error}): {said}") from error
            except (OSError, http.client.HTTPException) as error:
                processes.check()
                raise Broken(f"the server did not answer a warm-up request ({error})") from error
            settled = len(medians) >= 2 and abs(medians[-1] / medians[-2] - 1) <= warm["settle"]
            if len(medians) >= warm["min_rounds"] and settled:
                break
    return medians


def check_answers(server: Server, prompt: list[int], unanswered: int, timeout_s: float) -> None:
    """Raise Broken when a server that left ``unanswered`` requests does not answer this one either.

    ``unanswered``: without an answer, or with an error for one. The load is over, so a server that
    is only behind has dropped what was left and answers.
    """
    if not unanswered:
        return
    try:
        server.complete(prompt, 1, timeout_s)
    except urllib.error.HTTPError:
        return  # a refusal is an answer
    except (OSError, http.client.HTTPException) as error:
        raise Broken(
            f"the server at {server.url} hangs or is gone: it left {unanswered} requests without a "
            f"good answer, and one more after the load got none within {timeout_s:g} s ({error})"
            f"{_where_it_writes(server)}"
        ) from error


def _where_it_writes(server: Server) -> str:
    return f"; its output is in {server.child.log}" if server.child else ""


def _port(wanted: int | None) -> int:
    with socket.socket() as probe:
        # a server that just closed leaves the port in TIME_WAIT, which vLLM may reuse too
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted or 0))
        except OSError as error:
            raise Broken(
                f"config sidecar.port: {wanted} is taken by another process ({error.strerror}); "
                "expected a free port, or null"
            ) from error
        return probe.getsockname()[1]
