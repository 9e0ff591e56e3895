"""Bad input ends with one sentence, a non-zero exit and nothing half-written."""

import os
import socket
import sys

import pytest

from workflow.project import PACED, SMALL, Project

NOSYNC = "results/small/manifest/regime=bursty/seed=1/policy=nosync/draw=0/manifest.json"
ARRIVALS = "results/small/arrivals/regime=bursty/seed=1/part.parquet"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("bad"))
    project.take("resources/models")
    yield project
    project.stop()


def refused(project: Project, target: str, **values) -> str:
    config = project.config("bad", **SMALL | values)
    status, said = project.run(target, config=config)
    assert status != 0, said
    assert not (project.folder / target).exists()
    assert "Traceback" not in said, said
    assert project.processes() == []
    return said


def test_unknown_key(project):
    said = refused(project, "all", sidecr={})
    assert "config/bad.yaml: sidecr: unknown key; did you mean 'sidecar'?" in said


def test_horizon_shorter_than_one_merge(project):
    said = refused(project, "all", horizon_s=2)
    assert "horizon_s 2 holds no merge" in said


def test_missing_model_folder(project):
    model = {"source": "folder", "id": "no/such/folder", "name": "absent"}
    said = refused(project, "resources/models/absent.json", model=model)
    assert "config model.id: no such folder" in said
    assert not (project.folder / "resources/models/absent").exists()


def test_model_folder_that_has_gone(project):
    absent = project.folder / "resources/models/gone.json"
    absent.write_text("{}")
    os.utime(absent, (2e9, 2e9))
    said = refused(project, NOSYNC, model={"name": "gone"})
    assert "resources/models/gone: no such folder, though its checksum file is there" in said


def test_pickled_weights(project):
    folder = project.folder / "pickled"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    model = {"source": "folder", "id": str(folder), "name": "pickled"}
    said = refused(project, "resources/models/pickled.json", model=model)
    assert "holds pickled weights ['pytorch_model.bin']; only safetensors are served" in said


def test_zero_arrivals(project):
    arrivals = {"family": "periodic", "quiet_rps": 1e-9, "busy_rps": 1e-9}
    said = refused(project, ARRIVALS, regimes={"bursty": {"arrivals": arrivals}})
    assert "regime 'bursty', seed 1: family 'periodic' produced no request" in said


def test_occupied_port(project):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(project, NOSYNC, sidecar=PACED | {"port": port})
    assert f"config sidecar.port: {port} is taken by another process" in said


def test_a_server_that_never_becomes_healthy(project):
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    said = refused(project, NOSYNC, sidecar={"command": command, "start_timeout_s": 3})
    assert "did not become healthy within 3 s; its output is in" in said


def test_a_server_that_dies_at_once(project):
    command = [sys.executable, "-c", "import sys; sys.exit('error: no such device')"]
    said = refused(project, NOSYNC, sidecar={"command": command})
    assert "the server exited with status 1" in said
    assert "it said: error: no such device" in said


def test_cores_that_are_not_there(project):
    said = refused(project, NOSYNC, sidecar=PACED, cores={"client": [4096]})
    assert "config cores.client: core 4096 is not available here" in said


def test_unwritable_results_folder(project):
    (project.folder / "results").rename(project.folder / "results.aside")
    (project.folder / "results").write_text("a file stands where the folder should be")
    try:
        status, said = project.run(ARRIVALS, config=project.config("bad", **SMALL))
    finally:
        (project.folder / "results").unlink()
        (project.folder / "results.aside").rename(project.folder / "results")
    assert status != 0
    assert "results/small: Not a directory; the run's results go there" in said
