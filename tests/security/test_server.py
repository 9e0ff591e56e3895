"""The server answers on loopback, and only to who has its key."""

import socket
import sys
from pathlib import Path

import psutil
from security.sockets import listening, public

from safesync.config import Sidecar
from safesync.sidecar.server import start_server


def test_a_measurement_accepts_no_connection_from_outside(measured):
    assert any("tests/paced.py" in command for command in measured.listening)
    assert public(measured.listening) == {}


def test_the_server_refuses_whoever_has_not_its_key(measured):
    assert measured.statuses == [(401, 401), (401, 401), (200, 200)]


def test_a_socket_that_others_could_reach_is_found():
    with socket.create_server(("127.0.0.1", 0)):
        assert public(listening([psutil.Process()])) == {}
        with socket.create_server(("0.0.0.0", 0)):
            (found,) = public(listening([psutil.Process()])).values()
            assert found == ["0.0.0.0"]


def test_vllm_is_started_on_loopback_with_a_key_that_no_command_line_shows(tmp_path):
    started = []

    class Recorder:
        def start(self, name, command, log, *, cores, environment, lasts):
            assert lasts
            started.append((command, environment))

    sidecar = Sidecar().model_dump(mode="json")
    server = start_server(Recorder(), sidecar, tmp_path, "m", [0], Path("server.log"))
    ((command, environment),) = started
    assert command[:3] == [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert server.url.startswith("http://127.0.0.1:")
    assert environment["VLLM_API_KEY"] == server.key
    assert len(server.key) >= 32
    assert server.key not in " ".join(command)
