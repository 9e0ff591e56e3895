"""The real process; its rates are asked of a busy machine, so the bounds are wide."""

import time

import psutil
import pytest
from sidecar.background.processes import Processes

from safesync.sidecar.background import load

IDLE = {"kind": "load", "cpu_share": 0.0, "network_bytes_per_s": 0.0, "disk_bytes_per_s": 0.0}


def work(folder, seconds, **rates):
    """Return what one process did in about ``seconds``, and the bytes that its file held."""
    with Processes(folder, IDLE | rates) as processes:
        processes.start(0)
        processes.wait_ready()
        processes.go()
        time.sleep(seconds)
        held = sum(file.stat().st_size for file in folder.glob("*.bin"))
        (did,) = processes.stop()
    return did, held


def test_it_computes_sends_and_writes_at_its_rates(tmp_path):
    did, held = work(tmp_path, 2.0, cpu_share=0.3, network_bytes_per_s=8e6, disk_bytes_per_s=4e6)
    assert did["seconds"] >= 1.9
    assert 0.05 <= did["cpu_s"] / did["seconds"] <= 0.6
    assert 0.5 * 8e6 <= did["sent_bytes"] / did["seconds"] <= 8e6 * 1.001
    assert 0.2 * 4e6 <= did["written_bytes"] / did["seconds"] <= 4e6 * 1.001
    assert 0 < held <= did["written_bytes"]
    assert did["fsyncs"] >= 2
    assert 0 < did["fsync_s"] <= did["seconds"]
    assert not list(tmp_path.glob("*.bin"))


def test_zero_rates_do_nothing(tmp_path):
    did, held = work(tmp_path, 0.5)
    assert did["cpu_s"] < 0.2
    assert set(did) == {"seconds", "cpu_s"}
    assert held == 0


def test_the_file_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "FILE_BYTES", 3 * 2**20)
    monkeypatch.setattr(load, "due_s", lambda period_s, stopping: iter([1.0] * 4))
    seen = []
    monkeypatch.setattr(load.os, "fsync", lambda _: seen.append(path.stat().st_size))
    path = tmp_path / "written.bin"
    did = load.write(2 * 2**20, path, None)
    assert did["written_bytes"] == 8 * 2**20
    assert did["fsyncs"] == 4
    assert seen == [2 * 2**20, 3 * 2**20, 3 * 2**20, 3 * 2**20]
    assert not path.exists()


def test_a_folder_that_cannot_be_written_to_is_named_in_one_sentence(tmp_path):
    with Processes(
        tmp_path, IDLE | {"disk_bytes_per_s": 1e6}, folder=str(tmp_path / "no")
    ) as processes:
        processes.start(0)
        processes.wait_ready()
        processes.go()
        status, stderr = processes.end(0, 20)
    assert status == 1
    (sentence,) = stderr.splitlines()
    assert sentence.startswith("background process 0: error: ")
    assert f"{tmp_path / 'no'}/background.0.bin" in sentence
    assert not (tmp_path / "did.0.json").exists()


def test_a_wrong_plan_is_told_in_one_sentence(tmp_path):
    with Processes(tmp_path, IDLE | {"cpu_share": 1.5}) as processes:
        processes.start(0)
        status, stderr = processes.end(0, 20)
    assert status == 1
    assert "plan.json: work.load.cpu_share: " in stderr
    assert len(stderr.splitlines()) == 1


@pytest.mark.parametrize("number", [15, 2])
def test_a_signal_ends_it_at_once_and_its_file_is_gone(tmp_path, number):
    with Processes(tmp_path, IDLE | {"cpu_share": 1.0, "disk_bytes_per_s": 1e6}) as processes:
        processes.start(0)
        processes.wait_ready()
        processes.go()
        while not list(tmp_path.glob("*.bin")):
            time.sleep(0.02)
        processes.processes[0].send_signal(number)
        assert processes.end(0, 10) == (128 + number, "")
    assert not list(tmp_path.glob("*.bin"))


def test_it_ends_when_its_parent_is_killed(tmp_path):
    assert not Processes(tmp_path, IDLE | {"cpu_share": 1.0}).outlived_parent()


def test_it_computes_with_one_thread_and_talks_over_loopback_only(tmp_path):
    with Processes(tmp_path, IDLE | {"cpu_share": 1.0, "network_bytes_per_s": 1e6}) as processes:
        processes.start(0)
        processes.wait_ready()
        processes.go()
        process = psutil.Process(processes.processes[0].pid)
        while not (sockets := process.net_connections("inet")):
            time.sleep(0.02)
        # the watcher, the main thread, the pool of three and the peer: none of a numeric library
        assert process.num_threads() <= 6
        assert {socket.laddr.ip for socket in sockets} == {"127.0.0.1"}
