"""What the tests of a finished run share."""

import pytest

from workflow.project import PHASES, SMOKE, Project


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A copy of the project with a finished smoke run: the checkout's own, if it has one."""
    project = Project(tmp_path_factory.mktemp("finished"))
    project.take("resources/models", "results/smoke", ".snakemake/metadata")
    for phase in PHASES:
        status, said = project.run(phase, config=SMOKE, timeout_s=1200)
        assert status == 0, said
    yield project
    project.stop()
