"""What profiles/slurm asks for, planned without a cluster."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from slurm.submitting import PROFILE
from workflow.project import Project

# each a job of its own: they take minutes
ALONE = {"measure", "train_learners", "train_on_schedule", "prepare_model"}


@dataclass(frozen=True)
class Planned:
    """A job of a dry run; values as Snakemake prints them."""

    rule: str
    wildcards: dict[str, str]
    resources: dict[str, str]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return Project(tmp_path_factory.mktemp("profile"))


def plan(project: Project, config: str) -> tuple[list[Planned], list[str]]:
    """Return the jobs of a run on the cluster, and the groups that they are in."""
    status, said = project.run("-n", "--workflow-profile", "profiles/slurm", config=config)
    assert status == 0, said
    parts = re.split(r"^ *(?:local)?(?:rule|checkpoint) (\w+):\n", said, flags=re.MULTILINE)
    jobs = [
        Planned(rule, pairs("wildcards", body), pairs("resources", body))
        for rule, body in zip(parts[1::2], parts[2::2], strict=True)
        if rule != "all"
    ]
    return jobs, re.findall(r"Group job (\w+) \(", said)


def pairs(name: str, body: str) -> dict[str, str]:
    found = re.search(rf"^ *{name}: (.*)$", body, re.MULTILINE)
    return dict(pair.split("=", 1) for pair in found[1].split(", ")) if found else {}


def of(rule: str, jobs: list[Planned]) -> list[Planned]:
    return [job for job in jobs if job.rule == rule]


def test_a_small_run_asks_for_time_memory_and_whole_nodes(project):
    jobs, groups = plan(project, "config/smoke.yaml")
    for job in jobs:
        assert int(job.resources["runtime"]) >= 2, job
        assert int(job.resources["mem_mb"]) >= 2000, job
        alone = job.resources.get("slurm_extra", "").startswith("--exclusive")
        assert alone == (job.rule in ALONE - {"prepare_model"}), job
    [training] = of("train_learners", jobs)
    assert training.resources["cpus_per_task"] == "4"
    # 480 inner steps of at most 0.25 s, and 300 s
    assert training.resources["runtime"] == "7"
    [capture] = [job for job in of("measure", jobs) if job.wildcards["policy"] == "nosync"]
    assert capture.resources["cpus_per_task"] == "-1"
    assert capture.resources["gpu"] == "0"
    assert capture.resources["runtime"] == "11"
    # what is short is sent at once, in one job each
    assert sorted(groups) == sorted(set(groups))
    assert {"inputs", "schedules", "budgets", "computed", "emulated", "verdict"} <= set(groups)


def test_a_large_run_keeps_every_block_on_one_node_and_asks_for_gpus(project):
    jobs, _ = plan(project, "config/paper.yaml")
    nodes = {}
    for job in of("measure", jobs):
        place = (job.wildcards["regime"], job.wildcards["seed"])
        nodes.setdefault(place, set()).add(job.resources["slurm_extra"].partition("list=")[2])
        # a rank of NCCL has a GPU of its own
        assert job.resources["gpu"] == "4"
        assert job.resources["tasks_per_gpu"] == "0"
        assert job.resources["nodes"] == "1"
        assert job.resources["runtime"] == "21"
        # 6,000 MB and four ranks of 600 MB and six times 135 million parameters of 4 bytes
        assert job.resources["mem_mb"] == "21360"
    assert len(nodes) == 2 * (3 + 8)
    assert all(len(found) == 1 for found in nodes.values()), nodes
    assert set.union(*nodes.values()) == {"node01", "node02"}
    assert {job.resources["cpus_per_task"] for job in of("train_learners", jobs)} == {"8"}


def test_every_rule_has_a_group_or_is_a_job_of_its_own():
    text = "\n".join(path.read_text() for path in Path("workflow/rules").glob("*.smk"))
    rules = set(re.findall(r"^(?:rule|checkpoint) (\w+):$", text, re.MULTILINE))
    profile = yaml.safe_load(Path(PROFILE).read_text())
    assert set(profile["groups"]) == rules - ALONE
    assert set(profile["group-components"]) == set(profile["groups"].values()) - {"verdict"}
