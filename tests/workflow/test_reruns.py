"""What reruns after an edit: the exact set of jobs, planned on a finished real smoke run."""

import os
import re
import subprocess
import sys

import pytest

from safesync.tables.overlap import OVERLAP
from workflow.project import PHASES, ROOT, Project, copy_tree, planned
from workflow.project import SMOKE as CONFIG


@pytest.fixture
def project(finished, tmp_path):
    """The finished run, in a copy that may be edited."""
    folder = tmp_path / "project"
    copy_tree(finished.folder, folder)
    copy = object.__new__(Project)
    copy.folder = folder
    return copy


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
EMULATED = {"emulate_controls", "emulate fixed_h_96", "emulate wa_diloco"}
# as far as can be planned: which draws, and which training runs, the new budgets will tell
MEASURED_ANEW = {
    "measure nosync 0",
    "measure fixed_h_96 0",
    "schedule_policy fixed_h_96",
    "audit_causality fixed_h_96",
    *EMULATED,
    *DECIDED_ANEW,
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
            *EMULATED,
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
        (CONFIG, "  spacing: 0\n", "  spacing: 1\n"),
        {"schedule_spacing", "measure matched_spacing_wa_diloco 0", "agreement", *JUDGED},
        id="one more other order",
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
        {"agreement", *JUDGED},
        id="a validity limit",
    ),
    pytest.param(
        (CONFIG, "start_timeout_s: 300.0", "start_timeout_s: 200.0"),
        {"report"},
        id="a time-out that measures nothing",
    ),
    pytest.param(
        (CONFIG, "  passes: 10\n", "  passes: 11\n"),
        {"report"},
        id="a setting of merges that no policy makes",
    ),
    pytest.param(
        ("src/safesync/emulator/engine.py", '"""', '"""Edited. '),
        {"calibrate", "agreement", "transfer", "judge", "report", *EMULATED},
        id="the emulator",
    ),
    pytest.param(
        (CONFIG, "draws: 1000  # Draws of each control", "draws: 900  # Draws of each control"),
        {"judge", "report", *EMULATED},
        id="the emulator's draws",
    ),
    pytest.param(
        (CONFIG, "batch: 16  # Sequences per island and inner step of", "batch: 8  # Those of"),
        {
            "train_on_schedule fixed_h_96 0",
            "train_on_schedule wa_diloco 0",
            "train_on_schedule matched_random_{budget} 0",
            "judge",
            "report",
        },
        id="the parity runs",
    ),
    pytest.param(
        (CONFIG, "busy_rps: 6.0", "busy_rps: 5.0"),
        {"generate_arrivals", "emulated_arrivals", *MEASURED_ANEW},
        id="an arrival parameter",
    ),
    pytest.param(
        (CONFIG, "max_num_seqs: 64  #", "max_num_seqs: 32  #"),
        {"calibrate", *MEASURED_ANEW},
        id="the sidecar",
    ),
    pytest.param(
        (CONFIG, "parameters: 20000000  # fp32", "parameters: 16000000  # fp32"),
        {
            "calibrate",
            "measure fixed_h_96 0",
            "measure wa_diloco 0",
            "measure matched_random_{budget} 0",
            "agreement",
            "transfer",
            *EMULATED,
            *JUDGED,
        },
        id="the merge",
    ),
]


@pytest.mark.parametrize(("edit", "expected"), EDITS)
def test_an_edit_reruns_exactly(project, edit, expected):
    project.edit(*edit)
    budgets = list((project.folder / "results/smoke/schedule").rglob("policy=matched_random_*"))
    assert len(budgets) == 1
    budget = budgets[0].name.rpartition("_")[2]
    assert planned(project, CONFIG) == {job.replace("{budget}", budget) for job in expected}


def test_a_finished_run_has_nothing_to_do(finished):
    assert planned(finished, CONFIG) == set()


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
    assert planned(project, CONFIG) == set()


def test_another_seed_runs_itself_and_what_sums_up_over_seeds(project):
    project.edit(CONFIG, "judge: [23]  #", "judge: [23, 31]  #")
    assert planned(project, CONFIG, ("seed", "policy", "draw")) == {
        "generate_arrivals 31",
        "schedule_capture 31 nosync",
        "measure 31 nosync 0",
        "train_learners 31",
        "schedule_policy 31 fixed_h_96",
        "schedule_policy 31 wa_diloco",
        "measure 31 fixed_h_96 0",
        "measure 31 wa_diloco 0",
        "budgets 31",
        "overlap 31",
        "score 31",
        "audit_causality fixed_h_96",
        "audit_causality wa_diloco",
        *EMULATED,
        "agreement",
        "transfer",
        "judge",
        "report",
    }


def test_switching_branches_and_back_reruns_nothing(project):
    def git(*words):
        identity = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
        subprocess.run(["git", *identity, *words], cwd=project.folder, check=True)

    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message", "as it is")
    git("checkout", "--quiet", "-b", "other")
    edits = [edit.values[0] for edit in EDITS]
    for name, old, new in {edit[0]: edit for edit in edits}.values():
        project.edit(name, old, new)
    git("commit", "--quiet", "--all", "--message", "edited")
    assert {"report", "judge"} <= planned(project, CONFIG)
    git("checkout", "--quiet", "-")
    assert planned(project, CONFIG) == set()


def test_a_change_of_the_measurements_code_asks_why_it_has_no_effect(project):
    def weighed() -> subprocess.CompletedProcess:
        return python("-m", "pytest", "-p", "no:cacheprovider", "tests/test_measured.py")

    def python(*words) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, *words],
            cwd=project.folder,
            env=project.environment(),
            capture_output=True,
            text=True,
            check=False,
        )

    assert python("-m", "safesync.measured", "as it was found").returncode == 0
    assert weighed().returncode == 0
    project.edit("src/safesync/sidecar/measure.py", '"""', '"""Edited. ')
    asked = weighed()
    assert asked.returncode == 1
    assert "raise MEASUREMENT_VERSION if that alters what is measured" in asked.stdout
    assert python("-m", "safesync.measured", "a comment").returncode == 0
    assert weighed().returncode == 0
    assert planned(project, CONFIG) == set()


# the rows of the README's table and the edits, or tests, that show them
ROWS = {
    "nothing, or touch every file, or switch branches and back": [
        "test_a_finished_run_has_nothing_to_do",
        "test_touching_every_file_reruns_nothing",
        "test_switching_branches_and_back_reruns_nothing",
    ],
    "the report's template": ["report template"],
    "the server's start time-out, a setting of merges that no policy makes": [
        "a time-out that measures nothing",
        "a setting of merges that no policy makes",
    ],
    "the SLO threshold, a validity limit": ["SLO threshold", "a validity limit"],
    "a statistics function": ["a statistics function"],
    "one policy's file, what that imports from beside it, or a parameter": [
        "policy file",
        "policy parameter",
        "test_an_edit_that_changes_no_schedule_reruns_no_measurement",
    ],
    "one more draw, one more other order of a claim's gaps": [
        "one more draw",
        "one more other order",
    ],
    "one more seed": ["test_another_seed_runs_itself_and_what_sums_up_over_seeds"],
    "the emulator's code, the number of its draws": ["the emulator", "the emulator's draws"],
    "the learners": ["the learners' period"],
    "the training runs on schedules": ["the parity runs"],
    "an arrival parameter, the merge, the sidecar": [
        "an arrival parameter",
        "the merge",
        "the sidecar",
    ],
    "a comment in the measurement's code": [
        "a comment in a measurement room",
        "test_a_change_of_the_measurements_code_asks_why_it_has_no_effect",
    ],
}


def test_every_row_of_the_readme_is_shown_and_every_edit_has_a_row():
    table = (ROOT / "README.md").read_text().split("## What reruns")[1].split("\n\n")[1]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]]
    assert rows == list(ROWS)
    shown = [name for names in ROWS.values() for name in names]
    assert len(shown) == len(set(shown))
    tests = {name for name in shown if name.startswith("test_")}
    assert all(callable(globals()[name]) for name in tests)
    assert set(shown) - tests == {edit.id for edit in EDITS}


def test_an_edit_that_changes_no_schedule_reruns_no_measurement(project):
    project.edit("src/safesync/policies/wa_diloco.py", '"""', '"""Edited. ')
    for phase in PHASES:
        status, said = project.run(phase, config=CONFIG)
        assert status == 0, said
        assert "rule measure:" not in said
        told = "The report is results/smoke/report/index.html" in said
        assert told == (phase == "all")


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
