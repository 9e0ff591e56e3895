"""A user's policy file runs when the config names it, and no other file ever does."""

import subprocess
import sys

import pytest
from workflow.project import SMALL, Project

from safesync.policies import load_policy, policy_names

RAN = """\
import pathlib
pathlib.Path("ran").touch()
from safesync.policies import Decision, Policy

class Never(Policy):
    name = "decoy"
    def decide(self, observation):
        return Decision(merge=False)

POLICY = Never
"""


@pytest.fixture
def project(tmp_path):
    project = Project(tmp_path / "project")
    for place in ("decoy.py", "policies/decoy.py", "config/decoy.py"):
        path = project.folder / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(RAN)
    return project


def planned(project: Project, **values) -> bool:
    """Plan a run in words and as a dry run; return whether a decoy ran."""
    config = project.config("small", **SMALL | values)
    done = subprocess.run(
        [sys.executable, "-m", "safesync.plan", config],
        cwd=project.folder,
        env=project.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    status, said = project.run("-n", config=config)
    assert status == 0, said
    return (project.folder / "ran").exists()


def test_a_file_that_the_config_does_not_name_is_never_run(project):
    assert not planned(project)


def test_the_file_that_it_names_is_run(project):
    assert planned(project, policies=[{"id": "mine", "file": "decoy.py"}])


def test_a_built_in_name_means_no_file_of_the_working_folder(project, monkeypatch):
    monkeypatch.chdir(project.folder)
    monkeypatch.syspath_prepend(str(project.folder))
    assert "decoy" not in policy_names()
    for name in ("decoy", "../decoy", "policies.decoy", "..decoy"):
        with pytest.raises(ValueError, match=r"unknown policy"):
            load_policy(name)
    assert not (project.folder / "ran").exists()
