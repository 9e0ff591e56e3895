"""Training of a project's learners: brought to a checkpoint, seen to fail cleanly, taken up."""

import subprocess

from safesync.tables.learners import LEARNERS
from workflow.project import Project, wait_until

STEPS = 192  # of each of the two islands, in `project.SMALL`
PROGRESS = "results/small/learners/seed=1/part.parquet"


def under_way(project: Project, config: str) -> subprocess.Popen:
    """Start Snakemake for the learners' progress; return it when a checkpoint is there."""
    snakemake = project.start(PROGRESS, config=config)
    checkpoints = project.folder / "results/small/.training/learners/seed=1/checkpoints"
    wait_until(lambda: [*checkpoints.glob("outer-*")], 60, "a checkpoint")
    return snakemake


def fails(project: Project, snakemake: subprocess.Popen, timeout_s: float = 30) -> str:
    """See the run end without a trace of it; return what it said."""
    wait_until(lambda: snakemake.poll() is not None, timeout_s, "failure")
    said = project.said()
    assert snakemake.returncode != 0, said
    assert "Traceback" not in said, said
    wait_until(lambda: not project.processes(), 10, "no process left")
    assert not (project.folder / PROGRESS).exists()
    return said


def taken_up(project: Project, config: str) -> None:
    """See the next run go on at the checkpoint, to the end."""
    status, said = project.run(PROGRESS, config=config)
    assert status == 0, said
    assert "takes up a stopped run's checkpoint, of inner step " in said
    assert len(LEARNERS.read(project.folder / PROGRESS)) == 2 * STEPS
