"""The rules that train: progress of the learners, and a run on a schedule."""

import signal

import pytest

from safesync.tables.learners import LEARNERS
from safesync.tables.schedule import SCHEDULE
from safesync.tables.training import TRAINING
from workflow.project import SMALL, Project, wait_until

STEPS = 192
PROGRESS = "results/small/learners/seed=1/part.parquet"
SCHEDULED = "results/small/schedule/regime=bursty/seed=1/policy=matched_random_3/part.parquet"
TRAINED = (
    "results/small/training/regime=bursty/seed=1/policy=matched_random_3/draw=2/training_seed=5/"
    "part.parquet"
)


@pytest.fixture
def project(tmp_path):
    project = Project(tmp_path)
    yield project
    project.stop()


def test_learners_and_a_run_on_a_schedule(project):
    learners = SMALL["learners"] | {"h": 64}
    parity = {"seeds": [5], "islands": 3, "batch": 2}
    config = project.config("small", **SMALL | {"learners": learners, "parity": parity})
    status, said = project.run(PROGRESS, TRAINED, config=config)
    assert status == 0, said
    rows, facts = LEARNERS.read_with_metadata(project.folder / PROGRESS)
    assert len(rows) == 2 * STEPS
    assert facts["merge_steps"] == [64, 128, 192]
    schedule = SCHEDULE.read(project.folder / SCHEDULED).query("draw == 2")
    rows, trained = TRAINING.read_with_metadata(project.folder / TRAINED)
    # three merges of 2 s each, in which the learners stand still
    steps = STEPS - 3 * 32
    assert trained["merge_steps"] == sorted({*schedule["step"], steps})
    assert rows.groupby("island")["step"].max().tolist() == [steps] * 3
    assert trained["final_heldout_loss"] < trained["heldout"][0]["loss"] - 1
    assert (trained["policy"], trained["draw"], trained["training_seed"]) == (
        "matched_random_3",
        2,
        5,
    )
    assert trained["slot"] != facts["slot"]
    assert trained["slots"] == facts["slots"]
    assert not list((project.folder / "results/small").rglob("island-*"))


def test_a_killed_island_fails_the_job_and_the_next_run_takes_the_training_up(project):
    learners = SMALL["learners"] | {"h": 16, "batch": 64, "layers": 2}
    config = project.config("small", **SMALL | {"learners": learners})
    snakemake = project.start(PROGRESS, config=config)
    checkpoints = project.folder / "results/small/.training/learners/seed=1/checkpoints"
    wait_until(lambda: [*checkpoints.glob("outer-*")], 60, "a checkpoint")
    project.process("safesync.learners", "plan.json 1 ").send_signal(signal.SIGKILL)
    wait_until(lambda: snakemake.poll() is not None, 30, "failure")
    assert snakemake.returncode != 0
    assert "training island 1 was killed by SIGKILL; all islands were ended" in project.said()
    wait_until(lambda: not project.processes(), 10, "no process left")
    assert not (project.folder / PROGRESS).exists()
    status, said = project.run(PROGRESS, config=config)
    assert status == 0, said
    assert "takes up the checkpoint that a stopped run left" in said
    assert len(LEARNERS.read(project.folder / PROGRESS)) == 2 * STEPS
