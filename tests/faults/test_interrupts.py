"""Ctrl-C at each stage: a sentence, no process, no output; the next run finishes the work."""

import os
import re
import time

import pytest
from workflow.measuring import MANIFEST, NOSYNC, QUICK, completes, fails, reached
from workflow.project import PACED, SMALL, WEIGHTLESS, Project, wait_until
from workflow.test_emulated import PLANTED, planted
from workflow.training import fails as training_fails
from workflow.training import taken_up, under_way

SAID = "interrupted; nothing of it is taken as complete"

# a stage whose job stands still once it is at work
HALT = '    __import__("pathlib").Path("at-work").touch() or __import__("time").sleep(600)'
BLOCK = "regime=bursty/seed=23"
LIGHT = {
    "generate_arrivals": "results/planted/arrivals/regime=bursty/seed=5/part.parquet",
    "prepare_model": "resources/models/another.json",
    "schedule_policy": f"results/planted/schedule/{BLOCK}/policy=fixed_h_64/part.parquet",
    "overlap": "results/planted/overlap/regime_bursty/seed_23.parquet",
    "calibrate": "results/planted/model/regime=bursty/model.json",
}

SLEEPER = PACED | {"command": [PACED["command"][0], "-c", "import time; time.sleep(600)"]}
SLOW = PACED | {"command": [*PACED["command"], "--first-token-s", "8"]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A project with the measurements of a run, and the path of its config."""
    project = Project(tmp_path_factory.mktemp("interrupts") / "project")
    project.weightless()
    values = PLANTED | {"model": WEIGHTLESS}
    planted(project, values)
    yield project, project.config("planted", **values)
    project.stop()


@pytest.mark.parametrize("stage", LIGHT)
def test_ctrl_c_in_a_job(finished, stage):
    project, config = finished
    target, script = LIGHT[stage], project.folder / f"scripts/{stage}.py"
    whole, was = script.read_text(), script.stat()
    halted = re.sub(r"^(with job\(.*:)$", rf"\1\n{HALT}", whole, count=1, flags=re.MULTILINE)
    assert halted != whole
    script.write_text(halted)
    at_work = project.folder / "at-work"
    at_work.unlink(missing_ok=True)
    snakemake = project.start(target, config=config)
    wait_until(lambda: at_work.exists() or snakemake.poll() is not None, 90, "the job at work")
    assert snakemake.poll() is None, project.said()
    project.interrupt(snakemake)
    wait_until(lambda: snakemake.poll() is not None, 30, "end")
    said = project.said()
    assert snakemake.returncode != 0
    assert re.search(rf"^{stage}.*: {SAID}$", said, re.MULTILINE), said
    assert "Traceback" not in said, said
    wait_until(lambda: not project.processes(), 10, "no process left")
    assert not (project.folder / target).exists()
    script.write_text(whole)
    os.utime(script, ns=(was.st_atime_ns, was.st_mtime_ns))  # as if it had never been edited
    status, said = project.run(target, config=config)
    assert status == 0, said
    assert (project.folder / target).exists()


def test_ctrl_c_in_training(project):
    learners = SMALL["learners"] | {"h": 16, "batch": 64}
    config = project.config("small", **SMALL | {"learners": learners})
    snakemake = under_way(project, config)
    project.interrupt(snakemake)
    assert f"train_learners seed 1: {SAID}" in training_fails(project, snakemake)
    taken_up(project, config)


@pytest.mark.parametrize(
    ("sidecar", "words", "manifest"),
    [
        (SLEEPER, "waiting for the server", NOSYNC),
        (SLOW, "waiting for the server", NOSYNC),
        (PACED, "s of load", MANIFEST),
    ],
    ids=["start of the server", "warm-up", "load"],
)
def test_ctrl_c_in_a_measurement(project, sidecar, words, manifest):
    config = project.config("small", **QUICK | {"sidecar": sidecar})
    snakemake = reached(project, config, words, manifest)
    time.sleep(3)  # warm-up says nothing before it is over
    project.interrupt(snakemake)
    said = fails(project, snakemake, manifest)
    assert re.search(rf"^measure bursty seed 1 \w+ draw 0: {SAID}$", said, re.MULTILINE), said
    if sidecar is PACED:
        completes(project, config, manifest)
