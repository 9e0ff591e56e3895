"""A SLURM of one node on this machine: munged, slurmctld and slurmd, started and always ended."""

import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from workflow.project import wait_until

PACKAGES = "slurmctld slurmd slurm-client munge"
_COMMANDS = (
    *("munged", "munge", "slurmctld", "slurmd"),
    *("sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo"),
)
# the job steps of Snakemake's plugin find no other: it takes their SLURM_ variables away
_CONF = Path("/etc/slurm/slurm.conf")
_OURS = "# written by tests/slurm"
_MUNGE_KEY = Path("/etc/munge/munge.key")
_STATE = ("sinfo", "--noheader", "--format=%T")
_START_S = 30


def missing() -> str | None:
    """Return why no SLURM can be started here, as a sentence, or None when one can."""
    absent = [command for command in _COMMANDS if shutil.which(command) is None]
    if absent:
        return f"SLURM is not installed (no {', '.join(absent)}): apt-get install {PACKAGES}"
    if os.geteuid() != 0:
        return "the daemons of SLURM are started by root"
    if _CONF.exists() and _OURS not in _CONF.read_text():
        return f"{_CONF}: this machine is part of a SLURM of its own"
    return None


@dataclass(frozen=True)
class Job:
    """A line of the queue; ``comment`` is Snakemake's: rule and wildcards."""

    number: str
    state: str
    comment: str


class Cluster:
    """Context manager: a cluster of this host, whose jobs and daemons are gone at the end."""

    def __init__(self, folder: Path):
        self.node = socket.gethostname().split(".")[0]
        self._folder = folder
        self._daemons: list[tuple[str, subprocess.Popen]] = []

    def __enter__(self) -> "Cluster":
        _CONF.parent.mkdir(exist_ok=True)
        _CONF.write_text(self._conf())
        try:
            self._start_munge()
            self._start("slurmctld", "-D", "-c")
            self._start("slurmd", "-D")
            wait_until(lambda: self._alive() and _said(_STATE) == "idle", _START_S, "an idle node")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        try:
            if self._daemons and self._daemons[-1][0] == "slurmd":
                self._empty()
        finally:
            for _, daemon in reversed(self._daemons):
                daemon.terminate()
                try:
                    daemon.wait(10)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
            _CONF.unlink()

    def run(self, *command: str) -> str:
        """Return what a command of SLURM printed; fails with its words when it does."""
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def update(self, *settings: str) -> None:
        """Change a job or the node: ``scontrol update`` with ``KEY=VALUE`` each."""
        self.run("scontrol", "update", *settings)

    def state(self) -> str:
        """Return the state of the node, as sinfo names it."""
        return self.run(*_STATE)

    def jobs(self, *words: str, states: str = "all") -> list[Job]:
        """Return the jobs, old ones too, whose comment holds all ``words``, newest last."""
        lines = self.run(
            "squeue", "--noheader", "--sort=i", f"--states={states}", "--format=%i|%T|%k"
        ).splitlines()
        found = [Job(*line.strip().split("|", 2)) for line in lines]
        return [job for job in found if all(word in job.comment for word in words)]

    def job(self, *words: str) -> Job:
        """Return the newest job whose comment holds all ``words``."""
        return self.jobs(*words)[-1]

    def facts(self, job: Job) -> dict[str, str]:
        """Return what SLURM knows of a job: ``scontrol show job`` as a mapping."""
        said = self.run("scontrol", "show", "job", "--oneliner", job.number)
        return dict(pair.split("=", 1) for pair in said.split() if "=" in pair)

    def _start(self, name: str, *arguments: str, user: str | None = None) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            daemon = subprocess.Popen(
                # ended by the kernel too, should pytest be killed
                ["setpriv", "--pdeathsig", "TERM", shutil.which(name), *arguments],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
            )
        self._daemons.append((name, daemon))

    def _start_munge(self) -> None:
        if _munge_answers():
            return
        if not _MUNGE_KEY.exists():
            _MUNGE_KEY.touch(mode=0o400)
            _MUNGE_KEY.write_bytes(os.urandom(128))
            shutil.chown(_MUNGE_KEY, "munge", "munge")
        # what an init system would have made at boot
        socket_folder = Path("/run/munge")
        socket_folder.mkdir(mode=0o755, exist_ok=True)
        shutil.chown(socket_folder, "munge", "munge")
        self._start("munged", "--foreground", user="munge")
        wait_until(lambda: self._alive() and _munge_answers(), _START_S, "munge")

    def _alive(self) -> bool:
        for name, daemon in self._daemons:
            said = (self._folder / f"{name}.log").read_text(errors="replace")
            assert daemon.poll() is None, f"{name} ended with status {daemon.returncode}: {said}"
        return True

    def _empty(self) -> None:
        """End all jobs; what is left of a step is killed after KillWait."""
        _said(("scontrol", "update", f"NodeName={self.node}", "State=RESUME"))
        active = [job.number for job in self.jobs(states="PENDING,RUNNING")]
        if active:
            self.run("scancel", *active)
        deadline = time.monotonic() + 45
        while self.jobs(states="PENDING,RUNNING,COMPLETING") and time.monotonic() < deadline:
            time.sleep(0.5)

    def _conf(self) -> str:
        folders = {name: self._folder / name for name in ("state", "spool")}
        for folder in folders.values():
            folder.mkdir()
        settings = {
            "ClusterName": "safesync",
            "SlurmctldHost": f"{self.node}(127.0.0.1)",
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthType": "auth/munge",
            "ProctrackType": "proctrack/linuxproc",
            # holds a step to the cores that it asks for
            "TaskPlugin": "task/affinity",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "ReturnToService": "2",
            # seconds from SIGTERM to SIGKILL; half of what is usual
            "KillWait": "15",
            "MpiDefault": "none",
            "JobAcctGatherType": "jobacct_gather/none",
            "AccountingStorageType": "accounting_storage/none",
            # the profile asks for what a node of a cluster has
            "SlurmdParameters": "config_overrides",
            "StateSaveLocation": folders["state"],
            "SlurmdSpoolDir": folders["spool"],
            "SlurmctldPidFile": self._folder / "slurmctld.pid",
            "SlurmdPidFile": self._folder / "slurmd.pid",
        }
        return "\n".join(
            [
                _OURS,
                *(f"{name}={value}" for name, value in settings.items()),
                f"NodeName={self.node} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} RealMemory=256000",
                f"PartitionName=main Nodes={self.node} Default=YES MaxTime=INFINITE State=UP",
                "",
            ]
        )


def _munge_answers() -> bool:
    return _said(("munge", "--no-input")) is not None


def _said(command: tuple[str, ...]) -> str | None:
    """Return what a command printed, or None when it failed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
