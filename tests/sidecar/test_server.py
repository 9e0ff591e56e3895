import os
import signal

import pytest
from paced_process import paced_server

from safesync.config import Sidecar
from safesync.sidecar.processes import Broken, Processes
from safesync.sidecar.server import (
    Server,
    check_answers,
    start_server,
    vllm_command,
    vllm_environment,
    wait_healthy,
    warm_up,
)

SIDECAR = Sidecar().model_dump(mode="json")
WARM = {"batch": 2, "min_rounds": 2, "max_rounds": 5, "settle": 0.15}


class Scripted(Server):
    """A server whose completions take the scripted times."""

    def __init__(self, latencies):
        super().__init__("http://127.0.0.1:1", "m", "")
        self.latencies = iter(latencies)
        self.prompts = []

    def complete(self, prompt, output_tokens, timeout_s):
        self.prompts.append(tuple(prompt))
        return next(self.latencies)


def prompts():
    number = 0
    while True:
        number += 1
        yield [number]


def rounds(latencies, **changes):
    server = Scripted(latencies)
    return warm_up(None, server, WARM | changes, prompts(), 8, 5), server


def test_warm_up_ends_when_two_rounds_agree():
    medians, _ = rounds([2.0, 2.0, 1.0, 1.0, 0.95, 0.95, 0.5, 0.5])
    assert medians == [2.0, 1.0, 0.95]


def test_warm_up_gives_up_settling_after_the_last_round():
    medians, _ = rounds([2.0**-n for n in range(20)], batch=1)
    assert len(medians) == 5


def test_warm_up_makes_its_fewest_rounds():
    medians, _ = rounds([1.0] * 20, min_rounds=4)
    assert len(medians) == 4


def test_warm_up_prompts_are_distinct():
    _, server = rounds([1.0] * 20)
    assert len(set(server.prompts)) == len(server.prompts) == 4


def test_warm_up_names_what_the_server_refused(tmp_path):
    with paced_server("--fault", "all:status_500") as paced:
        server = Server(paced.url, "paced", "")
        with pytest.raises(Broken, match="refused a warm-up request"):
            warm_up(None, server, WARM, prompts(), 8, 5)


def test_a_running_server_is_attached_to_with_the_users_key(tmp_path, monkeypatch):
    monkeypatch.setenv("SAFESYNC_SIDECAR_API_KEY", "a-key")
    with paced_server() as paced, Processes(tmp_path) as processes:
        sidecar = SIDECAR | {"url": paced.url + "/"}
        server = start_server(processes, sidecar, tmp_path, "paced", [0], tmp_path / "log")
        assert server.child is None
        assert server.key == "a-key"
        assert wait_healthy(processes, server, 5) < 5
        assert server.complete([1000, 1001], 4, 5) > 0


def test_a_server_that_is_not_there_is_named_with_the_wait(tmp_path):
    with Processes(tmp_path) as processes:
        server = Server("http://127.0.0.1:9", "m", "")
        with pytest.raises(Broken, match=r"127\.0\.0\.1:9 did not become healthy within 0\.5 s"):
            wait_healthy(processes, server, 0.5)


def test_a_server_that_hangs_is_told_from_one_that_was_late(tmp_path):
    with paced_server() as paced:
        server = Server(paced.url, "paced", "")
        check_answers(server, [1000], 7, 5)
        os.kill(paced.process.pid, signal.SIGSTOP)
        try:
            check_answers(server, [1000], 0, 0.3)  # all were answered: nothing is asked
            with pytest.raises(Broken, match=r"hangs or is gone: it left 7 .* within 0\.3 s"):
                check_answers(server, [1000], 7, 0.3)
        finally:
            os.kill(paced.process.pid, signal.SIGCONT)
    # an attached server that went away is no child of ours that could be seen to die
    with pytest.raises(Broken, match=r"is gone: it left 2 requests without a good answer"):
        check_answers(server, [1000], 2, 5)


def test_a_refusal_after_the_load_is_an_answer():
    with paced_server("--fault", "all:status_500") as paced:
        check_answers(Server(paced.url, "paced", ""), [1000], 7, 5)


def test_the_key_is_random_and_never_shown(tmp_path):
    with Processes(tmp_path) as processes:
        command = ["sh", "-c", 'test -n "$VLLM_API_KEY" && sleep 60', "{port}", "{model}", "{name}"]
        sidecar = SIDECAR | {"command": command}
        cores = sorted(os.sched_getaffinity(0))
        servers = [
            start_server(processes, sidecar, tmp_path, "m", cores, tmp_path / f"log{number}")
            for number in range(2)
        ]
        assert servers[0].key != servers[1].key
        assert all(len(server.key) >= 32 and server.key not in repr(server) for server in servers)
        words = servers[0].child.process.args
        assert words[-3:] == [servers[0].url.rpartition(":")[2], str(tmp_path), "m"]
        assert servers[0].key not in " ".join(words)


def test_vllm_serves_on_loopback_and_calls_nobody(tmp_path):
    command = vllm_command(SIDECAR | {"extra_args": ["--seed", "7"]}, tmp_path, "m", 8123)
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[-2:] == ["--seed", "7"]
    assert command[command.index("--load-format") + 1] == "safetensors"
    assert "--trust-remote-code" not in command
    trusting = vllm_command(SIDECAR, tmp_path, "m", 8123, trust_remote_code=True)
    assert "--trust-remote-code" in trusting
    environment = vllm_environment(SIDECAR)
    assert environment["VLLM_HOST_IP"] == "127.0.0.1"
    assert environment["HF_HUB_OFFLINE"] == environment["VLLM_NO_USAGE_STATS"] == "1"
    assert environment["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert "VLLM_TARGET_DEVICE" not in vllm_environment(SIDECAR | {"device": "cuda"})
