"""Replays as jobs of a real SLURM, which is started for these tests and ended after them."""

import os

import pytest
from slurm.submitting import Submitting
from workflow.measuring import MANIFEST, NOSYNC, PROBED, outputs_of
from workflow.project import wait_until

from safesync.tables import read_document
from safesync.tables.requests import REQUESTS

BOTH = {"probe": MANIFEST, "nosync": NOSYNC}
# whatever a replay with merges consists of
PARTS = [
    ("scripts", "measure.py"),
    ("tests/paced.py",),
    ("safesync.sidecar.contend", "plan.json 0"),
    ("safesync.sidecar.contend", "plan.json 3"),
    ("safesync.sidecar.client",),
    ("safesync.sidecar.reaper",),
]


@pytest.fixture(scope="module")
def paced(cluster, tmp_path_factory):
    """A project whose traces are there and whose server is ready at once; its config too."""
    project = Submitting(tmp_path_factory.mktemp("paced"), cluster.node)
    yield project, project.with_traces()
    project.stop()


@pytest.mark.real
def test_a_real_capture_goes_through_sbatch(cluster, project):
    project.take("resources/models")
    to_prepare = not (project.folder / "resources/models/smollm2-135m-instruct.json").exists()
    config = project.config("small", **PROBED)
    snakemake = project.submit(NOSYNC, config=config, first_look_s=10)
    wait_until(lambda: snakemake.poll() is not None, 360, "the run")
    said = project.said()
    assert snakemake.returncode == 0, said
    # arrivals and schedule share a job
    assert said.count("has been submitted with SLURM jobid") == 2 + to_prepare, said
    manifest = read_document(project.folder / NOSYNC)
    assert manifest["attached"] is False
    assert manifest["kv_cache"]["blocks"] > 0
    assert manifest["figures"]["never_sent"] == 0
    assert manifest["cores"]["sidecar"] == sorted(os.sched_getaffinity(0))
    assert (REQUESTS.read(project.folder / outputs_of(NOSYNC)[0])["status"] == "ok").any()
    facts = cluster.facts(cluster.job("rule_measure", "nosync"))
    assert facts["ReqNodeList"] == cluster.node
    assert facts["OverSubscribe"] == "NO"
    assert facts["Requeue"] == "0"
    # 300 s of grace, 300 s for the server's start, 12 s of load, 5 s of drain
    assert facts["TimeLimit"] == "00:11:00"
    # 6,000 MB, 2 GiB of cache, four ranks of 600 MB and six times 2 million parameters of 4 bytes
    assert facts["MinMemoryNode"] == "10740M"


def test_a_cancelled_replay_leaves_no_process(cluster, paced):
    project, config = paced
    snakemake = project.submit(MANIFEST, config=config)
    project.under_load(snakemake, MANIFEST)
    for words in PARTS:
        project.process(*words)
    cluster.run("scancel", cluster.job("rule_measure", "probe").number)
    project.gone_from_node(snakemake, 30)
    assert "'CANCELLED'" in project.failed(snakemake, MANIFEST, timeout_s=90)


def test_the_next_run_completes_though_its_node_is_drained_in_between(cluster, paced):
    project, config = paced
    snakemake = project.submit(*BOTH.values(), config=config)

    def of(state: str) -> list[str]:
        """The policies whose replays are in a state."""
        jobs = cluster.jobs("rule_measure", states=state)
        return [name for name in BOTH for job in jobs if name in job.comment]

    # each replay is a job of its own, and the node takes one at a time
    wait_until(lambda: of("RUNNING") and of("PENDING"), 60, "two jobs in the queue")
    [first], [second] = of("RUNNING"), of("PENDING")
    project.under_load(snakemake, BOTH[first])
    cluster.update(f"NodeName={cluster.node}", "State=DRAIN", "Reason=test")
    wait_until(lambda: cluster.state() == "drained", 60, "the running replay's end")
    assert (project.folder / BOTH[first]).exists()
    assert of("RUNNING") == []
    assert of("PENDING") == [second]
    cluster.update(f"NodeName={cluster.node}", "State=RESUME")
    wait_until(lambda: snakemake.poll() is not None, 150, "the run")
    assert snakemake.returncode == 0, project.said()
    found = {name: read_document(project.folder / path) for name, path in BOTH.items()}
    assert found["probe"]["figures"]["merge_rounds_min"] >= 1
    assert found["probe"]["fingerprint"] == found["nosync"]["fingerprint"]
    wait_until(lambda: not project.processes(), 10, "no process left")


def test_a_replay_over_its_time_limit_is_ended_without_a_trace(cluster, project):
    config = project.with_traces(horizon_s=120)
    snakemake = project.submit(NOSYNC, config=config)
    project.under_load(snakemake, NOSYNC)
    # a limit is whole minutes, and SLURM looks twice a minute: this moves its end to now
    job = cluster.job("rule_measure", "nosync")
    cluster.update(f"JobId={job.number}", "EndTime=now+2")
    project.gone_from_node(snakemake, 75)
    assert "'TIMEOUT'" in project.failed(snakemake, NOSYNC, timeout_s=90)
