"""What reruns after an edit: the exact set of jobs, planned on a finished real smoke run."""

import os
import re
import shutil
import subprocess

import pytest

from workflow.project import ROOT, Project

CONFIG = "config/smoke.yaml"
PHASES = ("traces", "schedules", "all")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A copy of the project with a finished smoke run: the checkout's own, if it has one."""
    project = Project(tmp_path_factory.mktemp("finished"))
    project.take("resources/models", "results/smoke", ".snakemake/metadata")
    for phase in PHASES:
        status, said = project.run(phase, config=CONFIG, timeout_s=1200)
        assert status == 0, said
    yield project
    project.stop()


@pytest.fixture
def project(finished, tmp_path):
    """The finished run, in a copy that may be edited."""
    folder = tmp_path / "project"
    shutil.copytree(finished.folder, folder, symlinks=True)
    copy = object.__new__(Project)
    copy.folder = folder
    return copy


def planned(project: Project) -> set[str]:
    """Return the jobs of a dry run: rule, and policy and draw where it has them."""
    status, said = project.run("-n", config=CONFIG)
    assert status == 0, said
    jobs = set()
    for part in re.split(r"\n(?=(?:local)?(?:rule|checkpoint) \w+:\n)", said):
        rule = re.match(r"(?:local)?(?:rule|checkpoint) (\w+):\n", part)
        if not rule or rule[1] == "all":
            continue
        wildcards = re.search(r"^    wildcards: (.*)$", part, re.MULTILINE)
        named = dict(pair.split("=", 1) for pair in wildcards[1].split(", "))
        shown = [named[name] for name in ("policy", "draw") if name in named]
        jobs.add(" ".join([rule[1], *shown]))
    return jobs


JUDGED = {"score", "judge", "report"}

EDITS = [
    pytest.param(
        ("src/safesync/report/templates/index.html.j2", "<body", "<body data-edited"),
        {"report"},
        id="report template",
    ),
    pytest.param(
        (CONFIG, "threshold_s: 1.5", "threshold_s: 1.25"),
        {"slo_threshold", *JUDGED},
        id="SLO threshold",
    ),
    pytest.param(
        (CONFIG, "policy: wa_diloco, params: {}", "policy: wa_diloco, params: {threshold: 0.4}"),
        {"schedule_policy wa_diloco", "budgets", "measure wa_diloco 0", *JUDGED},
        id="policy parameter",
    ),
    pytest.param(
        ("src/safesync/policies/wa_diloco.py", '"""', '"""Edited. '),
        {"schedule_policy wa_diloco", "budgets", "measure wa_diloco 0", *JUDGED},
        id="policy file",
    ),
    pytest.param(
        (CONFIG, "draws: 1 ", "draws: 2 "),
        {"measure matched_random_{budget} 1", *JUDGED},
        id="one more draw",
    ),
    pytest.param(
        ("src/safesync/protocol/statistics.py", '"""', '"""Edited. '),
        {"judge", "report"},
        id="a statistics function",
    ),
    pytest.param(
        ("src/safesync/sidecar/measure.py", '"""', '"""Edited. '),
        set(),
        id="a comment in a measurement room",
    ),
    pytest.param(
        (CONFIG, "loop_lag_limit_s: 1.0", "loop_lag_limit_s: 0.9"),
        JUDGED,
        id="a validity limit",
    ),
    pytest.param(
        (CONFIG, "start_timeout_s: 300.0", "start_timeout_s: 200.0"),
        {"report"},
        id="a time-out that measures nothing",
    ),
]


@pytest.mark.parametrize(("edit", "expected"), EDITS)
def test_an_edit_reruns_exactly(project, edit, expected):
    project.edit(*edit)
    budgets = list((project.folder / "results/smoke/schedule").rglob("policy=matched_random_*"))
    assert len(budgets) == 1
    budget = budgets[0].name.rpartition("_")[2]
    assert planned(project) == {job.replace("{budget}", budget) for job in expected}


def test_a_finished_run_has_nothing_to_do(finished):
    assert planned(finished) == set()


def test_touching_every_file_reruns_nothing(project):
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    touched = [project.folder / name for name in listed if (project.folder / name).exists()]
    assert len(touched) > 100
    for path in touched:
        os.utime(path)
    assert planned(project) == set()


def test_an_edit_that_changes_no_schedule_reruns_no_measurement(project):
    project.edit("src/safesync/policies/wa_diloco.py", '"""', '"""Edited. ')
    for phase in PHASES:
        status, said = project.run(phase, config=CONFIG)
        assert status == 0, said
        assert "rule measure:" not in said
