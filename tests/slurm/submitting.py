"""A copy of the project that sends its jobs to the cluster, with the profile that users have."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
from workflow.measuring import QUICK, START_S, log_of, outputs_of, told
from workflow.project import Project, wait_until

PROFILE = "profiles/slurm/config.yaml"


class Submitting(Project):
    """The project, its profile edited as its head says: the node that measures."""

    def __init__(self, folder: Path, node: str):
        super().__init__(folder)
        self.edit(PROFILE, "nodes: [node01, node02]", f"nodes: ['{node}']")

    def with_traces(self, **changes) -> str:
        """Make arrivals and captures' schedules of a quick config here; return the config."""
        self.weightless()
        config = self.config("small", **QUICK | changes)
        status, said = self.run("traces", config=config)
        assert status == 0, said
        return config

    def submit(self, *targets: str, config: str, first_look_s: int = 5) -> subprocess.Popen:
        """Start Snakemake; it looks at its jobs after ``first_look_s``, then ever more rarely."""
        for manifest in targets:
            # what an earlier run said would be taken for this one's
            (self.folder / log_of(manifest)).unlink(missing_ok=True)
        with (self.folder / "snakemake.out").open("wb") as output:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "snakemake", *targets, "--configfile", config),
                    *("--workflow-profile", "profiles/slurm"),
                    # without accounting sacct knows nothing
                    *("--slurm-status-command", "squeue"),
                    *("--slurm-init-seconds-before-status-checks", str(first_look_s)),
                ],
                cwd=self.folder,
                env=self.environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def under_load(self, snakemake: subprocess.Popen, manifest: str) -> None:
        """Wait until the measurement of ``manifest`` sends its load."""
        log = self.folder / log_of(manifest)
        wait_until(lambda: told(log, "s of load") or snakemake.poll() is not None, START_S, "load")
        assert snakemake.poll() is None, self.said()

    def on_node(self, snakemake: subprocess.Popen) -> list[psutil.Process]:
        """Return what SLURM started inside the project: all but Snakemake and its commands."""
        return [process for process in self.processes() if _session(process) != snakemake.pid]

    def gone_from_node(self, snakemake: subprocess.Popen, timeout_s: float) -> None:
        """Wait until SLURM has ended all that it started; fails with what is left."""
        left: list[psutil.Process] = []

        def none() -> bool:
            left[:] = self.on_node(snakemake)
            return not left

        try:
            wait_until(none, timeout_s, "no process left on the node")
        except AssertionError as error:
            raise AssertionError(f"{error}: {[_told(process) for process in left]}") from None

    def failed(self, snakemake: subprocess.Popen, manifest: str, timeout_s: float) -> str:
        """See the run fail, with nothing of the measurement left; return what it said."""
        wait_until(lambda: snakemake.poll() is not None, timeout_s, "failure")
        said = self.said()
        assert snakemake.returncode != 0, said
        wait_until(lambda: not self.processes(), 10, "no process left")
        assert [name for name in outputs_of(manifest) if (self.folder / name).exists()] == []
        assert list((self.folder / "results/small/.scratch").iterdir()) == []
        return said


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return None


def _told(process: psutil.Process) -> str:
    try:
        return f"{process.pid} of {process.ppid()} {process.status()}: {process.cmdline()[:4]}"
    except psutil.Error:
        return "one that has ended since"
