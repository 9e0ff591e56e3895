"""Whatever is killed during a measurement: the job fails, says so, and leaves nothing behind."""

import os
import signal
from pathlib import Path

import pytest

from safesync.config import read
from safesync.tables import read_document
from workflow.project import PACED, SMALL, Project, wait_until

OUTPUTS = "results/small/{}/regime=bursty/seed=1/policy=fixed_h_24/draw=0/"
MANIFEST = OUTPUTS.format("manifest") + "manifest.json"
LOG = OUTPUTS.format("logs/measure") + "measure.log"
START_S = 150  # a real server needs 35 s on an idle machine
FAIL_S = 30


@pytest.fixture
def project(tmp_path):
    project = Project(tmp_path)
    project.take("resources/models")
    yield project
    project.stop()


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def kill_under_load(project: Project, config: str, *words: str) -> str:
    """Kill the process of ``words`` while load runs; return what Snakemake then said."""
    before = shared_memory()
    snakemake = project.start(MANIFEST, config=config)
    log = project.folder / LOG
    wait_until(
        lambda: (log.exists() and "s of load" in log.read_text()) or snakemake.poll() is not None,
        START_S,
        "load",
    )
    assert snakemake.poll() is None, project.said()
    project.process(*words).send_signal(signal.SIGKILL)
    wait_until(lambda: snakemake.poll() is not None, FAIL_S, "failure")
    assert snakemake.returncode != 0
    wait_until(lambda: not project.processes(), 10, "no process left")
    assert not (project.folder / MANIFEST).exists()
    assert not list((project.folder / "results/small/.scratch").iterdir())
    assert shared_memory() - before == set()
    return project.said()


def completes(project: Project, config: str) -> None:
    status, said = project.run(MANIFEST, config=config)
    assert status == 0, said
    manifest = read_document(project.folder / MANIFEST)
    merges = len(
        [line for line in said.splitlines() if "Finished jobid" in line and "measure" in line]
    )
    assert merges == 1
    assert manifest["figures"]["merge_rounds_min"] >= 1
    assert manifest["figures"]["never_sent"] == 0
    wait_until(lambda: not project.processes(), 10, "no process left")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("safesync.sidecar.contend", "plan.json 1"), "merge rank 1 was killed by SIGKILL"),
        (("safesync.sidecar.client",), "the load generator (Locust) was killed by SIGKILL"),
    ],
    ids=["rank", "locust"],
)
def test_a_killed_part_ends_the_job_and_the_next_run_completes(project, words, sentence):
    config = project.config("small", **SMALL, sidecar=PACED)
    assert sentence in kill_under_load(project, config, *words)
    completes(project, config)


@pytest.mark.real
def test_a_killed_vllm_ends_the_job_and_the_next_run_completes(project):
    config = project.config("small", **SMALL)
    said = kill_under_load(project, config, "vllm.entrypoints", "--served-model-name")
    assert "the server was killed by SIGKILL" in said
    completes(project, config)


@pytest.mark.real
def test_a_killed_snakemake_takes_vllm_down(project):
    config = project.config("small", **SMALL)
    snakemake = project.start(MANIFEST, config=config)
    log = project.folder / LOG
    wait_until(lambda: log.exists() and "s of load" in log.read_text(), START_S, "load")
    assert len(project.processes()) > 5
    os.kill(snakemake.pid, signal.SIGKILL)
    snakemake.wait()
    wait_until(lambda: not project.processes(), FAIL_S, "no process left")
    assert "is gone" in log.read_text()
    assert not (project.folder / MANIFEST).exists()
    status, said = project.run("--unlock", config=config)
    assert status == 0, said


def test_a_killed_measurement_is_reaped_from_outside(project):
    config = project.config("small", **SMALL, sidecar=PACED)
    snakemake = project.start(MANIFEST, config=config)
    log = project.folder / LOG
    wait_until(lambda: log.exists() and "s of load" in log.read_text(), START_S, "load")
    project.process("scripts", "measure.py").send_signal(signal.SIGKILL)
    wait_until(lambda: snakemake.poll() is not None, FAIL_S, "failure")
    wait_until(lambda: not project.processes(), 15, "no process left")
    assert not list((project.folder / "results/small/.scratch").iterdir())


def test_an_interrupt_leaves_nothing(project):
    config = project.config("small", **SMALL, sidecar=PACED)
    snakemake = project.start(MANIFEST, config=config)
    log = project.folder / LOG
    wait_until(lambda: log.exists() and "s of load" in log.read_text(), START_S, "load")
    os.killpg(snakemake.pid, signal.SIGINT)
    wait_until(lambda: snakemake.poll() is not None, FAIL_S, "end")
    assert snakemake.returncode != 0
    wait_until(lambda: not project.processes(), 10, "no process left")
    assert not (project.folder / MANIFEST).exists()


def test_the_small_config_is_what_it_says():
    # the default config reads the same sections: a renamed key must not silently drop out here
    assert set(SMALL) <= set(type(read("config/config.yaml")).model_fields)
