import os

import pytest
from slurm.cluster import Cluster, missing
from slurm.submitting import Submitting


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """The cluster, started once. Without it tests are skipped; where CI is set, they fail."""
    why = missing()
    if why and os.environ.get("CI"):
        pytest.fail(why)
    if why:
        pytest.skip(why)
    with Cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def project(cluster, tmp_path):
    project = Submitting(tmp_path / "project", cluster.node)
    yield project
    project.stop()
