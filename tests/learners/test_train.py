"""Whole runs of real processes: finished, killed, taken up again, and never left behind."""

import fcntl
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from safesync.learners import train as training
from safesync.learners.settings import Plan, Training
from safesync.learners.train import TrainingError, train
from safesync.tables.learners import LEARNERS

STEPS = 700
SETTINGS = Training(
    islands=2, layers=1, width=16, heads=2, context=32, batch=4, heldout_tokens=1024, timeout_s=30
)


SPREADS = {"blocking": {}, "overlapped": {"fragments": 4, "delay_steps": 5}}


def run(folder, say=lambda line: None, settings=SETTINGS, **spread):
    return train(
        settings,
        folder,
        seed=23,
        data=(3, 8),
        steps=STEPS,
        merges=range(100, STEPS, 100),
        decay_steps=STEPS,
        **spread,
        say=say,
    )


def islands() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        command = process.cmdline()
        if "safesync.learners" in command:
            found.append(process)
    return sorted(found, key=lambda process: process.cmdline()[-1])


def on_progress(act):
    """Call ``act`` with the islands at the first line of progress after some merges."""

    def say(line):
        if line.startswith("inner step 210 "):
            act(islands())

    return say


@pytest.fixture(scope="module", params=SPREADS.values(), ids=SPREADS)
def uninterrupted(tmp_path_factory, request):
    lines = []
    folder = tmp_path_factory.mktemp("run") / "training"
    rows, facts = run(folder, lines.append, **request.param)
    return folder, rows, facts, lines, request.param


def test_a_run_gives_every_step_of_every_island(uninterrupted, tmp_path):
    folder, rows, facts, lines, spread = uninterrupted
    LEARNERS.write(tmp_path / "learners.parquet", rows)  # it fits its schema
    assert len(rows) == 2 * STEPS
    assert (rows["step_s"] > 0).all()
    assert facts["merge_steps"] == [*range(100, STEPS, 100), STEPS]
    assert (facts["seed"], facts["slot"], facts["slots"], facts["islands"]) == (23, 3, 8, 2)
    assert {name: facts[name] for name in spread} == spread
    assert len(facts["corpus_sha256"]) == 64
    assert len(lines) == 10
    assert lines[-1].startswith(f"inner step {STEPS} of {STEPS}, loss ")
    assert not folder.exists()


def test_the_loss_falls_on_data_that_was_never_trained_on(uninterrupted):
    facts = uninterrupted[2]
    assert facts["heldout"][0]["loss"] == pytest.approx(5.55, abs=0.1)  # ln 256
    assert facts["final_heldout_loss"] < 3.7


def test_a_killed_island_ends_the_run_and_the_next_one_gives_the_same_to_the_last_bit(
    uninterrupted, tmp_path
):
    _, rows, facts, _, spread = uninterrupted
    ended = []

    def kill(found):
        ended.extend(found)
        found[1].send_signal(signal.SIGKILL)

    with pytest.raises(TrainingError, match="training island 1 was killed by SIGKILL; all islands"):
        run(tmp_path / "run", on_progress(kill), **spread)
    assert len(ended) == 2
    assert not any(process.is_running() for process in ended)
    lines = []
    again, known = run(tmp_path / "run", lines.append, **spread)
    assert re.fullmatch(r"takes up a stopped run's checkpoint, of inner step \d+", lines[0])
    assert len(lines) < 11
    assert again["loss"].tolist() == rows["loss"].tolist()
    assert known["heldout"] == facts["heldout"]


def test_a_silent_island_ends_the_run_within_the_time_out(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "_GRACE_S", 0.5)
    ended = []

    def stop(found):
        ended.extend(found)
        found[1].send_signal(signal.SIGSTOP)

    hasty = SETTINGS.model_copy(update={"timeout_s": 3.0})
    with pytest.raises(
        TrainingError,
        match="training island 0 ended with status 3; it said: a peer rank did not answer in time",
    ):
        run(tmp_path / "run", on_progress(stop), hasty)
    assert not any(process.is_running() for process in ended)


@pytest.mark.parametrize("damaged", ["outer-*", "island-0001-*"])
def test_a_damaged_checkpoint_is_told_and_the_training_starts_anew(
    uninterrupted, tmp_path, damaged
):
    _, rows, facts, _, spread = uninterrupted
    with pytest.raises(TrainingError):
        run(tmp_path / "run", on_progress(lambda found: found[0].kill()), **spread)
    for path in (tmp_path / "run/checkpoints").glob(damaged):
        path.write_bytes(path.read_bytes()[:-100])
    lines = []
    again, known = run(tmp_path / "run", lines.append, **spread)
    told = [line for line in lines if line.endswith("; starts anew")]
    assert len(told) == 1 and re.search(f"/{damaged.replace('*', '.*')}: ", told[0])
    assert again["loss"].tolist() == rows["loss"].tolist()
    assert known["heldout"] == facts["heldout"]


def test_a_folder_in_which_another_process_trains_is_refused(tmp_path):
    with (tmp_path / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TrainingError, match=r": another process trains here; wait for it or"):
            run(tmp_path)


ENDLESS = """
from pathlib import Path
from safesync.learners.settings import Training
from safesync.learners.train import train
train(Training(islands=2, batch=4, layers=1), Path("run"), seed=1, data=(0, 8), steps=100_000,
      merges=[50_000], decay_steps=1, say=print)
"""
STARTER = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', sys.argv[1]]))"


@pytest.mark.parametrize("command", [[ENDLESS], [STARTER, ENDLESS]], ids=["itself", "its starter"])
def test_all_end_when_the_run_or_its_starter_is_killed_outright(tmp_path, command):
    killed = subprocess.Popen([sys.executable, "-c", *command], cwd=tmp_path)
    try:
        deadline = time.monotonic() + 30
        # two islands below whatever starts them
        while len(found := psutil.Process(killed.pid).children(recursive=True)) < 1 + len(command):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        killed.kill()
        killed.wait()
    _, alive = psutil.wait_procs(found, timeout=15)
    assert alive == []


def test_what_an_island_refuses_is_said_in_its_words(tmp_path):
    greedy = SETTINGS.model_copy(update={"batch": 100_000})
    with pytest.raises(
        TrainingError, match=r"ended with status 1; it said: batch 100000: a shard of \d+ bytes has"
    ):
        run(tmp_path / "run", settings=greedy)


def test_a_checkpoint_of_another_plan_is_not_taken_up(tmp_path):
    plan = Plan(
        **SETTINGS.model_dump(),
        seed=1,
        slot=0,
        slots=8,
        steps=9,
        decay_steps=9,
        merges=(3,),
        folder=tmp_path / "run",
    )
    training.prepare(plan, {"merges": [3]}, b"corpus")
    left = plan.checkpoints / "outer-0-9.safetensors"
    left.touch()
    plan.rendezvous.touch()
    training.prepare(plan, {"merges": [3]}, b"corpus")
    assert left.exists() and not plan.rendezvous.exists()
    training.prepare(plan, {"merges": [4]}, b"corpus")
    assert not left.exists()
    assert plan.corpus.read_bytes() == b"corpus"
