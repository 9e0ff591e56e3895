"""What stands still without dying: stopped by SIGSTOP, and named by whoever waits for it."""

import re
import signal

from workflow.measuring import QUICK, completes, fails, reached
from workflow.project import SMALL
from workflow.training import fails as training_fails
from workflow.training import taken_up, under_way


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
    assert re.search(r"the server at \S+ hangs or is gone: it left \d+ requests", said), said
    completes(project, config)


def test_a_hung_island_is_told_by_those_who_wait_for_it(project):
    learners = SMALL["learners"] | {"h": 16, "batch": 64, "timeout_s": 8}
    config = project.config("small", **SMALL | {"learners": learners})
    snakemake = under_way(project, config)
    project.process("safesync.learners", "plan.json 1 ").send_signal(signal.SIGSTOP)
    said = training_fails(project, snakemake, timeout_s=45)
    assert re.search(
        r"training island 0 ended with status \d+; it said: .*a peer rank did not answer in time "
        r"while waiting for .*; all islands were ended",
        said,
    ), said
    taken_up(project, config)
