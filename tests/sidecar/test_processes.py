import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from safesync.sidecar.processes import Broken, Processes

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
FORKS = [
    sys.executable,
    "-c",
    "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', "
    "'import time; time.sleep(600)']); print(p.pid, flush=True); time.sleep(600)",
]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); "
    "time.sleep(600)",
]


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def first_line(log: Path) -> str:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if log.exists() and log.read_text().endswith("\n"):
            return log.read_text().strip()
        time.sleep(0.02)
    raise AssertionError(f"{log} stays empty")


@pytest.fixture
def cores():
    return sorted(os.sched_getaffinity(0))


def test_leaving_ends_grandchildren_too(tmp_path, cores):
    with Processes(tmp_path) as processes:
        child = processes.start("a", FORKS, tmp_path / "a.log", cores=cores)
        grandchild = int(first_line(tmp_path / "a.log"))
        assert alive(grandchild)
    assert not alive(child.process.pid)
    assert not alive(grandchild)


def test_an_exception_ends_them_as_well(tmp_path, cores):
    with pytest.raises(KeyError), Processes(tmp_path) as processes:
        child = processes.start("a", SLEEP, tmp_path / "a.log", cores=cores)
        raise KeyError
    assert not alive(child.process.pid)


def test_who_ignores_the_request_is_killed(tmp_path, cores):
    with Processes(tmp_path) as processes:
        child = processes.start("a", STUBBORN, tmp_path / "a.log", cores=cores)
        first_line(tmp_path / "a.log")
        begin = time.monotonic()
        processes.stop(child, grace_s=0.5)
        assert 0.5 <= time.monotonic() - begin < 5
        assert child.process.returncode == -signal.SIGKILL


def test_an_orderly_end_does_not_wait_for_the_grace(tmp_path, cores):
    with Processes(tmp_path) as processes:
        child = processes.start("a", SLEEP, tmp_path / "a.log", cores=cores)
        begin = time.monotonic()
        processes.stop(child, grace_s=30)
        assert time.monotonic() - begin < 5


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL"),
        ("import sys; print('ValueError: no'); sys.exit(3)", "exited with status 3"),
    ],
)
def test_a_death_is_told_with_who_and_how(tmp_path, cores, body, sentence):
    with Processes(tmp_path) as processes:
        command = [sys.executable, "-c", body]
        child = processes.start("the server", command, tmp_path / "a.log", cores=cores)
        child.process.wait()
        with pytest.raises(Broken, match=f"the server {sentence} during the measurement"):
            processes.check()


def test_what_is_to_last_dies_of_a_good_end(tmp_path, cores):
    with Processes(tmp_path) as processes:
        command = [sys.executable, "-c", "print('EngineDeadError: gone')"]
        child = processes.start("the server", command, tmp_path / "a.log", cores=cores, lasts=True)
        child.process.wait()
        with pytest.raises(Broken, match=r"the server exited with status 0 .* EngineDeadError"):
            processes.check()
        processes.stop(child)
        processes.check()


def test_a_good_end_is_no_fault(tmp_path, cores):
    with Processes(tmp_path) as processes:
        child = processes.start("a", [sys.executable, "-c", ""], tmp_path / "a.log", cores=cores)
        processes.wait(child, time.monotonic() + 10)


def test_cores_and_priority_are_as_asked(tmp_path, cores):
    with Processes(tmp_path) as processes:
        log = tmp_path / "a.log"
        child = processes.start("a", SLEEP, log, cores=cores[-1:], nice=5)
        deadline = time.monotonic() + 5
        while psutil.Process(child.process.pid).name() == "taskset":
            assert time.monotonic() < deadline
        assert psutil.Process(child.process.pid).cpu_affinity() == cores[-1:]
        assert psutil.Process(child.process.pid).nice() == 5
        assert child.raised


MEASUREMENT = """
import os, sys, time
from pathlib import Path
from safesync.sidecar.processes import Processes
folder = Path(sys.argv[1])
with Processes(folder / "scratch") as processes:
    child = processes.start("a", [sys.executable, "-c", "import time; time.sleep(600)"],
                            folder / "a.log", cores=sorted(os.sched_getaffinity(0)))
    print(child.process.pid, flush=True)
    while True:
        processes.check()
        time.sleep(0.05)
"""


def measurement(tmp_path, shell=()):
    (tmp_path / "scratch").mkdir()
    return subprocess.Popen(
        [*shell, sys.executable, "-c", MEASUREMENT, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a shell that started the tests in the background had them ignore it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def gone(pid: int, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


def test_a_killed_measurement_is_cleaned_up_from_outside(tmp_path):
    killed = measurement(tmp_path)
    child = int(killed.stdout.readline())
    killed.kill()
    killed.wait()
    assert gone(child, 10)
    deadline = time.monotonic() + 10
    while (tmp_path / "scratch").exists():
        assert time.monotonic() < deadline


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_through_the_context(tmp_path, number):
    told = measurement(tmp_path)
    child = int(told.stdout.readline())
    told.send_signal(number)
    assert told.wait(10) != 0
    assert not alive(child)


def test_a_dead_caller_ends_the_measurement(tmp_path):
    script = tmp_path / "caller.py"
    script.write_text(
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {MEASUREMENT!r}, {str(tmp_path)!r}])\n"
    )
    (tmp_path / "scratch").mkdir()
    caller = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    child = int(caller.stdout.readline())
    caller.kill()
    caller.wait()
    assert gone(child, 10)
