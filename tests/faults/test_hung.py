"""What stands still without dying: stopped by SIGSTOP, and named by whoever waits for it."""

import re
import signal

from workflow.measuring import QUICK, completes, fails, reached
from workflow.project import SMALL, wait_until

from safesync.tables.learners import LEARNERS

PROGRESS = "results/small/learners/seed=1/part.parquet"


def test_a_hung_rank_is_told_by_those_who_wait_for_it(project):
    merge = SMALL["merge"] | {"timeout_s": 10}
    config = project.config("small", **QUICK | {"merge": merge})
    snakemake = reached(project, config)
    project.process("safesync.sidecar.contend", "plan.json 1").send_signal(signal.SIGSTOP)
    said = fails(project, snakemake)
    assert re.search(
        r"merge rank [023] exited with status 1 during the measurement; it said: contend rank "
        r"[023]: a peer rank did not answer in time while waiting for .* in merge \d",
        said,
    ), said
    completes(project, config)


def test_a_hung_server_is_a_fault_and_no_slow_service(project):
    client = SMALL["client"] | {"timeout_s": 4}
    config = project.config("small", **QUICK | {"client": client})
    snakemake = reached(project, config)
    project.process("tests/paced.py").send_signal(signal.SIGSTOP)
    said = fails(project, snakemake)
    assert re.search(r"the server at \S+ hangs: it left \d+ requests without an answer", said), said
    completes(project, config)


def test_a_hung_island_is_told_by_those_who_wait_for_it(project):
    learners = SMALL["learners"] | {"h": 16, "batch": 64, "timeout_s": 8}
    config = project.config("small", **SMALL | {"learners": learners})
    snakemake = project.start(PROGRESS, config=config)
    checkpoints = project.folder / "results/small/.training/learners/seed=1/checkpoints"
    wait_until(lambda: [*checkpoints.glob("outer-*")], 60, "a checkpoint")
    project.process("safesync.learners", "plan.json 1 ").send_signal(signal.SIGSTOP)
    wait_until(lambda: snakemake.poll() is not None, 45, "failure")
    said = project.said()
    assert snakemake.returncode != 0
    assert re.search(
        r"training island 0 ended with status \d+; it said: .*a peer rank did not answer in time "
        r"while waiting for .*; all islands were ended",
        said,
    ), said
    assert "Traceback" not in said
    wait_until(lambda: not project.processes(), 10, "no process left")
    assert not (project.folder / PROGRESS).exists()
    status, said = project.run(PROGRESS, config=config)
    assert status == 0, said
    assert "takes up the checkpoint that a stopped run left" in said
    assert len(LEARNERS.read(project.folder / PROGRESS)) == 2 * 192
