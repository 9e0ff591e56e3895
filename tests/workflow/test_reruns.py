"""What reruns after an edit: the exact set of jobs, planned on a finished real smoke run."""

import os
import re
import subprocess

import pytest

from safesync.tables.overlap import OVERLAP
from workflow.project import ROOT, Project, copy_tree

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
    copy_tree(finished.folder, folder)
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
DECIDED_ANEW = {
    "schedule_policy wa_diloco",
    "audit_causality wa_diloco",
    "budgets",
    "overlap",
    "measure wa_diloco 0",
    "emulate wa_diloco",
    "agreement",
    "transfer",
    *JUDGED,
}

EDITS = [
    pytest.param(
        ("src/safesync/report/templates/index.html.j2", "<body", "<body data-edited"),
        {"report"},
        id="report template",
    ),
    pytest.param(
        (CONFIG, "threshold_s: 1.5", "threshold_s: 1.25"),
        {
            "slo_threshold",
            "emulate fixed_h_96",
            "emulate wa_diloco",
            "agreement",
            "transfer",
            *JUDGED,
        },
        id="SLO threshold",
    ),
    pytest.param(
        (CONFIG, "policy: wa_diloco, params: {}", "policy: wa_diloco, params: {threshold: 0.4}"),
        DECIDED_ANEW,
        id="policy parameter",
    ),
    pytest.param(
        ("src/safesync/policies/wa_diloco.py", '"""', '"""Edited. '),
        DECIDED_ANEW,
        id="policy file",
    ),
    pytest.param(
        (CONFIG, "  h: 96  #", "  h: 48  #"),
        {
            "train_learners",
            "schedule_policy fixed_h_96",
            "audit_causality fixed_h_96",
            "measure fixed_h_96 0",
            "emulate fixed_h_96",
            *DECIDED_ANEW,
        },
        id="the learners' period",
    ),
    pytest.param(
        (CONFIG, "draws: 1  # Draws", "draws: 2  # Draws"),
        {"measure matched_random_{budget} 1", "agreement", "transfer", *JUDGED},
        id="one more draw",
    ),
    pytest.param(
        ("src/safesync/protocol/statistics.py", '"""', '"""Edited. '),
        {"agreement", "judge", "report"},
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


def test_the_policy_of_the_readme_runs_on_a_finished_run_without_a_measurement(project):
    readme = (ROOT / "README.md").read_text()
    source = re.search(r"```python\n(# my_policy\.py.*?)```", readme, re.DOTALL)[1]
    assert len([line for line in source.splitlines() if line.strip()]) <= 15
    (project.folder / "my_policy.py").write_text(source)
    project.edit(
        CONFIG,
        "policies:\n",
        "policies:\n  - {id: calm, file: my_policy.py, params: {limit: 1}, measure: false}\n",
    )
    status, said = project.run("all", config=CONFIG)
    assert status == 0, said
    assert "rule measure:" not in said
    assert "audit_causality calm: bursty, seed 23: calm: decisions up to 50 cuts stayed" in said
    rows = OVERLAP.read(project.folder / "results/smoke/overlap/regime_bursty/seed_23.parquet")
    assert "calm" in set(rows["policy"])
    assert "calm" in (project.folder / "results/smoke/report/index.html").read_text()


def test_a_policy_that_looks_ahead_is_refused(project):
    (project.folder / "peek.py").write_text(
        "import glob\n"
        "from safesync.policies import Decision, Policy\n"
        "from safesync.policies.observe import ObservedTrace\n"
        "SEEN = []\n"
        "whole = ObservedTrace.observe\n"
        "def observe(self, *arguments):\n"
        "    SEEN[:] = [self]\n"
        "    return whole(self, *arguments)\n"
        "ObservedTrace.observe = observe\n"
        "class Peek(Policy):\n"
        "    name = 'peek'\n"
        "    def decide(self, seen):\n"
        "        soon = (SEEN[0].arrival_s > seen.now_s) & (SEEN[0].arrival_s < seen.now_s + 4)\n"
        "        return Decision(merge=bool(soon.sum() < 4))\n"
        "POLICY = Peek\n"
    )
    project.edit(
        CONFIG,
        "policies:\n",
        "policies:\n  - {id: peek, file: peek.py, measure: false}\n",
    )
    status, said = project.run("results/smoke/causality/peek.json", config=CONFIG)
    assert status == 0, said
    assert "peek: the decision at" in said
    audit = (project.folder / "results/smoke/causality/peek.json").read_text()
    assert '"passed": false' in audit
