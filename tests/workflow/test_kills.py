"""Whatever is killed during a measurement: the job fails, says so, and leaves nothing behind."""

import os
import re
import signal
from pathlib import Path

import psutil
import pytest
from security.sockets import listening, public

from safesync.config import read
from workflow.measuring import (
    FAIL_S,
    MANIFEST,
    PROBED,
    QUICK,
    completes,
    fails,
    log_of,
    reached,
)
from workflow.project import SMALL, Project, wait_until

VLLM = ("vllm.entrypoints", "--served-model-name")


@pytest.fixture
def project(tmp_path):
    project = Project(tmp_path)
    project.take("resources/models")
    project.weightless()
    yield project
    project.stop()


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def kill_under_load(
    project: Project,
    config: str,
    *words: str,
    number: int = signal.SIGKILL,
    part=lambda found: found,
) -> str:
    """Signal the process of ``words``, or that ``part`` of it, while load runs.

    Return what Snakemake then said.
    """
    before = shared_memory()
    snakemake = reached(project, config)
    part(project.process(*words)).send_signal(number)
    said = fails(project, snakemake)
    wait_until(lambda: shared_memory() <= before, 10, "no shared memory left")
    return said


def engine(server: psutil.Process) -> psutil.Process:
    """Return vLLM's engine, a process of its own."""
    (found,) = [child for child in server.children() if child.name().startswith("VLLM::Engine")]
    return found


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("safesync.sidecar.contend", "plan.json 1"), "merge rank 1 was killed by SIGKILL"),
        (("safesync.sidecar.client",), "the load generator (Locust) was killed by SIGKILL"),
        # what the kernel sends when memory is out
        (("tests/paced.py",), "the server was killed by SIGKILL"),
    ],
    ids=["rank", "locust", "server"],
)
def test_a_killed_part_ends_the_job_and_the_next_run_completes(project, words, sentence):
    config = project.config("small", **QUICK)
    assert f"{sentence} during the measurement" in kill_under_load(project, config, *words)
    assert completes(project, config)["figures"]["merge_rounds_min"] >= 1


def test_a_server_that_leaves_in_good_order_ends_the_job_too(project):
    config = project.config("small", **QUICK)
    said = kill_under_load(project, config, "tests/paced.py", number=signal.SIGTERM)
    assert "the server exited with status 0 during the measurement" in said
    completes(project, config)


@pytest.mark.real
@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        (lambda server: server, "was killed by SIGKILL"),
        # without it the server answers errors for a while, and then leaves as if all were well
        (engine, r"exited with status \d+"),
    ],
    ids=["server", "engine"],
)
def test_a_killed_vllm_ends_the_job_and_the_next_run_completes(project, part, sentence):
    config = project.config("small", **PROBED)
    said = kill_under_load(project, config, *VLLM, part=part)
    assert re.search(f"the server {sentence} during the measurement", said), said
    completes(project, config)


@pytest.mark.real
def test_a_killed_snakemake_takes_vllm_down(project):
    config = project.config("small", **PROBED)
    snakemake = reached(project, config)
    assert len(project.processes()) > 5
    assert public(listening(project.processes())) == {}
    os.kill(snakemake.pid, signal.SIGKILL)
    snakemake.wait()
    wait_until(lambda: not project.processes(), FAIL_S, "no process left")
    assert "is gone" in (project.folder / log_of(MANIFEST)).read_text()
    assert not (project.folder / MANIFEST).exists()
    status, said = project.run(MANIFEST, config=config)
    assert status != 0
    assert "Directory cannot be locked" in said
    assert "--unlock" in said
    status, said = project.run("--unlock", config=config)
    assert status == 0, said


def test_a_killed_measurement_is_reaped_from_outside(project):
    config = project.config("small", **QUICK)
    snakemake = reached(project, config)
    project.process("scripts", "measure.py").send_signal(signal.SIGKILL)
    fails(project, snakemake)


def test_the_small_config_is_what_it_says():
    # the default config reads the same sections: a renamed key must not silently drop out here
    assert set(SMALL) <= set(type(read("config/config.yaml")).model_fields)
