"""The processes of one measurement: started in groups of their own, watched, and always ended."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from safesync.sidecar.reaper import end_groups

_PR_SET_CHILD_SUBREAPER = 36
_SHELLS = ("sh", "bash", "dash", "zsh")


class Broken(RuntimeError):
    """The measurement is of no use and its job must fail; the message is one sentence."""


@dataclass
class Child:
    """A started process; ``raised`` tells whether its wished priority was granted.

    ``lasts``: it is to run until it is stopped, so that even an orderly end is a death.
    """

    name: str
    process: subprocess.Popen
    log: Path
    nice: int
    raised: bool
    lasts: bool = False

    def death(self) -> str | None:
        """Return how it ended, or None while it lives."""
        code = self.process.poll()
        if code is None:
            return None
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"exited with status {code}"


class Processes:
    """Context manager: every process started through it is gone when the context is left.

    A separate reaper process does the same when this process is killed outright, and removes
    ``scratch`` too. SIGTERM turns into SystemExit, so that cancelled jobs leave through here.
    """

    def __init__(self, scratch: Path):
        self._scratch = scratch
        self._children: list[Child] = []
        self._watched = _waiting_ancestors()

    def __enter__(self) -> "Processes":
        # orphans of the server (its engine, its workers) come to us, so that we can reap them
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._reaper = subprocess.Popen(
            [sys.executable, "-m", "safesync.sidecar.reaper", str(self._scratch)],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._handlers = {
            number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)
        }
        return self

    def __exit__(self, *_) -> None:
        for number in self._handlers:
            signal.signal(number, signal.SIG_IGN)
        try:
            self._end(list(self._children), grace_s=5.0)
            self._tell_reaper("done")
        finally:
            self._reaper.stdin.close()
            self._reaper.wait()
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

    def start(
        self,
        name: str,
        command: list[str],
        log: Path,
        *,
        cores: list[int],
        nice: int = 0,
        environment: dict[str, str] | None = None,
        lasts: bool = False,
    ) -> Child:
        """Start ``command`` in a process group of its own, on ``cores``, with priority ``nice``.

        Output goes to ``log``. ``lasts``: as in ``Child``. A priority that is not permitted is not
        an error: the returned child says so.
        """
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["taskset", "--cpu-list", ",".join(map(str, cores)), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        self._tell_reaper(str(process.pid))
        granted = True
        try:
            psutil.Process(process.pid).nice(nice)
        except psutil.AccessDenied:
            granted = nice == 0
        except psutil.NoSuchProcess:
            pass
        child = Child(name, process, log, nice, granted, lasts)
        self._children.append(child)
        return child

    def check(self) -> None:
        """Raise Broken when a child died that was not yet done, or when our caller did."""
        for child in self._children:
            death = child.death()
            if death is not None and (child.lasts or child.process.returncode != 0):
                raise Broken(f"{child.name} {death} during the measurement; {_last_words(child)}")
        for ancestor in self._watched:
            if not ancestor.is_running() or ancestor.status() == psutil.STATUS_ZOMBIE:
                raise Broken(f"the process that started this measurement ({ancestor.pid}) is gone")

    def wait(self, child: Child, deadline: float) -> None:
        """Wait until ``child`` has exited with status 0; raises Broken at ``deadline``."""
        while child.process.poll() is None:
            self.check()
            if time.monotonic() > deadline:
                raise Broken(f"{child.name} did not finish in time; its output is in {child.log}")
            time.sleep(0.1)
        self.check()

    def stop(self, child: Child, grace_s: float = 10.0) -> None:
        """End ``child`` and its group now; its death is no longer a fault."""
        self._end([child], grace_s)
        self._children.remove(child)

    def _tell_reaper(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._reaper.stdin.write(line + "\n")
            self._reaper.stdin.flush()

    def _end(self, children: list[Child], grace_s: float) -> None:
        end_groups([child.process.pid for child in children], grace_s, reap=self._reap)
        for child in children:
            child.process.wait()
        self._reap()

    def _reap(self) -> None:
        for child in self._children:
            child.process.poll()
        ours = {self._reaper.pid, *(child.process.pid for child in self._children)}
        for process in psutil.Process().children():
            if process.pid not in ours and process.status() == psutil.STATUS_ZOMBIE:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)


def _leave(number: int, _frame) -> None:
    sys.exit(128 + number)


def _waiting_ancestors() -> list[psutil.Process]:
    """Return the processes that wait for us, up to the first that is no shell (Snakemake)."""
    chain = []
    for process in psutil.Process().parents():
        chain.append(process)
        if process.name() not in _SHELLS:
            break
    return chain


def _last_words(child: Child) -> str:
    lines = child.log.read_text(encoding="utf-8", errors="replace").splitlines()[-200:]
    telling = [
        line.strip() for line in lines if "error" in line.lower() and "warn" not in line.lower()
    ]
    said = telling or [line.strip() for line in lines if line.strip()]
    return f"it said: {said[-1][:300]} ({child.log})" if said else f"it said nothing ({child.log})"
