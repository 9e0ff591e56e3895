"""Tables of an earlier run that are damaged or of an older schema: named, never half-believed."""

import os
from dataclasses import replace

import pytest
from workflow.project import Project
from workflow.test_emulated import PLANTED, planted

from safesync.tables.requests import REQUESTS

CAPTURE = "regime=bursty/seed={}/policy=nosync/draw=0/"
TABLE = "results/planted/requests/" + CAPTURE.format(23) + "part.parquet"
MANIFEST = "results/planted/manifest/" + CAPTURE.format(11) + "manifest.json"
# what is made of the one and of the other
OVERLAP = "results/planted/overlap/regime_bursty/seed_23.parquet"
MODEL = "results/planted/model/regime=bursty/model.json"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A project with the measurements of a run, and the path of its config."""
    project = Project(tmp_path_factory.mktemp("tables") / "project")
    planted(project, PLANTED)
    yield project, project.config("planted", **PLANTED)
    project.stop()


def truncated(path):
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def emptied(path):
    path.write_bytes(b"")


def overwritten(path):
    # the footer, which says what the file holds, is as it was
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + bytes(400) + whole[404:])


def aged(path):
    rows = REQUESTS.read(path)
    replace(REQUESTS, version=REQUESTS.version - 1).write(path, rows)


UNREADABLE = f"{TABLE}: not a readable Parquet file ("
OLDER = (
    f"{TABLE}: table 'requests' has schema version {REQUESTS.version - 1}, expected "
    f"{REQUESTS.version}; remove the file and run again"
)


@pytest.mark.parametrize(
    ("name", "damage", "target", "sentence"),
    [
        (TABLE, truncated, OVERLAP, UNREADABLE),
        (TABLE, emptied, OVERLAP, UNREADABLE),
        (TABLE, overwritten, OVERLAP, UNREADABLE),
        (TABLE, aged, OVERLAP, OLDER),
        (MANIFEST, truncated, MODEL, f"{MANIFEST}: not valid JSON ("),
    ],
    ids=["truncated", "empty", "corrupted", "older schema", "truncated manifest"],
)
def test_a_file_that_cannot_be_trusted_is_named(finished, name, damage, target, sentence):
    project, config = finished
    path = project.folder / name
    whole, was = path.read_bytes(), path.stat()
    damage(path)
    try:
        status, said = project.run(target, config=config)
    finally:
        path.write_bytes(whole)
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert status != 0
    assert sentence in said
    assert "Traceback" not in said, said
    assert not (project.folder / target).exists()


def test_a_removed_table_is_measured_again_and_a_whole_one_lets_the_run_finish(finished):
    project, config = finished
    path = project.folder / TABLE
    whole, was = path.read_bytes(), path.stat()
    path.unlink()
    status, said = project.run("-n", OVERLAP, config=config)
    assert status == 0, said
    assert said.count("rule measure:") == 1
    path.write_bytes(whole)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    status, said = project.run(OVERLAP, config=config)
    assert status == 0, said
    assert "rule measure:" not in said
    assert (project.folder / OVERLAP).exists()
