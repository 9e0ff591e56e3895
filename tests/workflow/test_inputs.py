"""Files that the config only leads to: an edit of them reruns what they made."""

import pytest

from workflow.planted import PLANTED, Run
from workflow.project import Project

MODEL = "resources/models/own.json"
MINE = """
from limits import LIMIT
from safesync.policies import Decision, Policy


class Mine(Policy):
    name = "mine"

    def decide(self, observation):
        return Decision(merge=observation.gap >= LIMIT)


POLICY = Mine
"""


@pytest.fixture
def project(tmp_path):
    project = Project(tmp_path)
    yield project
    project.stop()


def outdated(project, *arguments, config):
    """Return whether a dry run would make the target anew."""
    status, said = project.run("-n", *arguments, config=config)
    assert status == 0, said
    assert ("Nothing to be done" in said) != ("total" in said), said
    return "total" in said


def test_weights_that_are_edited_in_place_are_prepared_again(project):
    folder = project.folder / "weights"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"one")
    model = {"source": "folder", "id": "weights", "name": "own"}
    config = project.config("small", model=model)
    status, said = project.run(MODEL, config=config)
    assert status == 0, said
    before = (project.folder / MODEL).read_text()
    assert not outdated(project, MODEL, config=config)
    (folder / "model.safetensors").write_bytes(b"another")
    assert outdated(project, MODEL, config=config)
    assert project.run(MODEL, config=config)[0] == 0
    assert (project.folder / MODEL).read_text() != before


def test_what_a_policy_file_imports_decides_its_schedule(project):
    (project.folder / "mine.py").write_text(MINE)
    limits = project.folder / "limits.py"
    limits.write_text("LIMIT = 48\n")
    values = PLANTED | {"policies": [{"id": "mine", "file": "mine.py"}], "claims": ["mine"]}
    run = Run(project, values | {"policies": PLANTED["policies"], "claims": ["fixed_h_64"]})
    rows = run.arrivals(23)
    run.learners(23)
    run.measure(23, "nosync", 0, rows, [])
    config = project.config("planted", **values | {"controls": {"draws": 2, "pool": 5}})
    made = "results/planted/schedule/regime=bursty/seed=23/policy=mine/part.parquet"
    only = (made, "--allowed-rules", "schedule_policy")
    status, said = project.run(*only, config=config)
    assert status == 0, said
    assert not outdated(project, *only, config=config)
    limits.write_text("LIMIT = 64\n")
    assert outdated(project, *only, config=config)
