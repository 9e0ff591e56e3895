import pytest
from workflow.project import Project


@pytest.fixture
def project(tmp_path):
    project = Project(tmp_path / "project")
    project.weightless()
    yield project
    project.stop()
