"""Keys and tokens of the environment stand in no log, table, manifest or report."""

import ast
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from paced_process import paced_server
from security.ill_will import SECRETS
from security.search import holding
from workflow.measuring import NOSYNC, QUICK
from workflow.project import PACED, Project

from safesync.sidecar.processes import Broken
from safesync.sidecar.server import Server, warm_up

# who reads the environment, each for what it must hand on; whatever else is written can't hold it
READERS = {
    "learners/train.py",
    "outer/group.py",
    "sidecar/background/__main__.py",
    "sidecar/client/process.py",
    "sidecar/client/shards.py",
    "sidecar/model.py",
    "sidecar/processes.py",
    "sidecar/server.py",
}


def test_no_file_of_a_measurement_holds_a_secret(measured):
    assert measured.told_under_load == set()
    assert len(measured.key) >= 32
    assert holding(measured.project.folder, [*SECRETS.values(), measured.key]) == set()


def test_a_secret_is_found_wherever_it_is_written(tmp_path):
    secret = SECRETS["HF_TOKEN"]
    folder = tmp_path / "results/regime=bursty"
    folder.mkdir(parents=True)
    (folder / "server.log").write_text(f"token {secret}\n")
    (folder / "manifest.json").write_text(json.dumps({"environment": {"HF_TOKEN": secret}}))
    rows = pa.table({"error": [f"401: {secret}"] * 1000})
    pq.write_table(rows, folder / "rows.parquet", compression="zstd")
    facts = pa.table({"a": [1]}).replace_schema_metadata({"safesync": secret})
    pq.write_table(facts, folder / "facts.parquet")
    (folder / "clean.log").write_text("token ***\n")
    pq.write_table(pa.table({"a": [1]}), folder / "clean.parquet")
    told = {"server.log", "manifest.json", "rows.parquet", "facts.parquet"}
    assert holding(tmp_path, [secret]) == told


def test_a_server_that_tells_its_environment_would_be_found(tmp_path):
    project = Project(tmp_path / "project")
    project.weightless()
    code = "import os, sys; sys.exit('error: ' + os.environ['HF_TOKEN'])"
    sidecar = PACED | {"command": [PACED["command"][0], "-c", code]}
    config = project.config("small", **QUICK | {"sidecar": sidecar})
    snakemake = project.start(NOSYNC, config=config, environment=SECRETS)
    assert snakemake.wait(120) != 0
    told = holding(project.folder, SECRETS.values())
    assert {"server.log", "measure.log", "snakemake.out"} <= told


@pytest.mark.parametrize("status", [401, 500])
def test_a_refusal_that_repeats_the_key_is_told_without_it(status, monkeypatch):
    key = SECRETS["SAFESYNC_SIDECAR_API_KEY"]
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    # the paced server shows a wrong key in its answer
    monkeypatch.setenv("SAFESYNC_API_KEY", "another" if status == 401 else key)
    faults = ("--fault", "all:status_500") if status == 500 else ()
    with paced_server(*faults) as paced, pytest.raises(Broken) as broken:
        warm = {"batch": 1, "min_rounds": 1, "max_rounds": 1, "settle": 0.1}
        warm_up(None, Server(paced.url, "paced", key), warm, iter([[1]]), 1, 5)
    assert f"{status}" in str(broken.value)
    assert key not in str(broken.value)


def environment_readers() -> set[str]:
    """Return the library's files that read the environment."""
    root = Path("src/safesync")
    return {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if any(
            isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv")
            for node in ast.walk(ast.parse(path.read_text()))
        )
    }


def test_only_those_read_the_environment_that_start_processes_or_talk_to_a_server():
    assert environment_readers() == READERS


def test_no_script_reads_the_environment():
    for path in Path("scripts").glob("*.py"):
        assert "environ" not in path.read_text(), path
