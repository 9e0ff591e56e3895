"""The rules that train: progress of the learners, and a run on a schedule."""

import signal

import pandas as pd
import pytest

from safesync.tables.learners import LEARNERS
from safesync.tables.schedule import SCHEDULE
from safesync.tables.training import TRAINING
from workflow.project import SMALL, Project
from workflow.training import PROGRESS, STEPS, fails, taken_up, under_way

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
    assert (trained["style"], trained["fragments"], trained["delay_steps"]) == ("blocking", 1, 0)
    assert not list((project.folder / "results/small").rglob("island-*"))


def test_a_killed_island_fails_the_job_and_the_next_run_takes_the_training_up(project):
    learners = SMALL["learners"] | {"h": 16, "batch": 64, "layers": 2}
    config = project.config("small", **SMALL | {"learners": learners})
    snakemake = under_way(project, config)
    project.process("safesync.learners", "plan.json 1 ").send_signal(signal.SIGKILL)
    said = fails(project, snakemake)
    assert "training island 1 was killed by SIGKILL; all islands were ended" in said
    taken_up(project, config)


def test_a_policy_is_trained_in_its_own_style(project):
    late = {"id": "late", "policy": "fixed_h", "params": {"h": 24}, "style": "overlapped"}
    parity = {"seeds": [5], "islands": 2, "batch": 2, "delay_steps": 3}
    config = project.config("small", **SMALL | {"policies": [late], "parity": parity})
    rows = {"draw": 0, "merge": [0, 1], "step": [24, 64], "start_s": [1.5, 6.0]}
    rows = pd.DataFrame(rows | {"reason": "policy", "score": None})
    SCHEDULE.write(project.folder / SCHEDULED.replace("matched_random_3", "late"), rows)
    trained = TRAINED.replace("matched_random_3", "late").replace("draw=2", "draw=0")
    # the schedule is given: what it would be made from is not there
    status, said = project.run(trained, "--allowed-rules", "train_on_schedule", config=config)
    assert status == 0, said
    _, facts = TRAINING.read_with_metadata(project.folder / trained)
    # 2 million parameters in fragments of half a million
    assert (facts["style"], facts["fragments"], facts["delay_steps"]) == ("overlapped", 4, 3)
    # the last fragments are taken three quarters of the way from 24 to 64 and from 64 to the end
    assert [at["step"] for at in facts["heldout"]] == [0, 54 + 3, 112 + 3, STEPS - 2 * 32]
