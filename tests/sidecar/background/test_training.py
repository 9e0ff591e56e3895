"""Inner steps in real processes; a busy machine may be slow, so only what can't be is asked."""

import json
import threading
import time

import psutil
import pytest
from sidecar.background.processes import Processes

from safesync.sidecar.background.plan import InnerSteps
from safesync.sidecar.background.training import Island

SMALL = {"islands": 2, "layers": 1, "width": 16, "heads": 2, "context": 16, "batch": 4}


@pytest.fixture
def work(tmp_path):
    corpus = tmp_path / "corpus.bin"
    corpus.write_bytes(bytes(range(256)) * 32 * 64)
    return {
        "kind": "training",
        "settings": SMALL,
        "step_s": 0.01,
        "decay_steps": 400,
        "corpus": str(corpus),
        "pauses_s": [],
    }


def test_islands_train_until_the_stop_and_learn(tmp_path, work):
    with Processes(tmp_path, work, processes=2) as processes:
        processes.start(0, 1)
        processes.wait_ready()
        # torch's own threads aside, none computes beside the one that trains
        assert all(psutil.Process(one.pid).num_threads() < 12 for one in processes.processes)
        processes.go()
        time.sleep(1.5)
        did = processes.stop()
    for one in did:
        assert 10 <= one["steps"] <= 1 + one["seconds"] / 0.01
        assert one["paused_s"] == 0
        # every byte follows from the one before it
        assert one["loss"] < 5.5
        assert one["cpu_s"] > 0


def trained(folder, work, seconds, **changes):
    """Return what an island does in this process from t0 on."""
    go, stopping = folder / "go.json", threading.Event()
    island = Island(InnerSteps.model_validate(work | changes), 0, go)
    go.write_text(json.dumps({"t0_ns": time.monotonic_ns()}))
    threading.Timer(seconds, stopping.set).start()
    return island.train(stopping)


def test_no_step_is_taken_while_a_merge_holds_the_island(tmp_path, work):
    did = trained(tmp_path, work, 0.8, pauses_s=[[0.0, 0.4], [0.4, 60.0]])
    assert did["steps"] == 0
    assert did["loss"] is None
    assert 0.7 <= did["paused_s"] <= 0.8 + 0.5


def test_training_goes_on_before_and_after_a_pause(tmp_path, work):
    did = trained(tmp_path, work, 1.2, pauses_s=[[0.4, 0.8]])
    assert 0.3 <= did["paused_s"] <= 0.4 + 0.5
    assert did["steps"] > 10


def test_every_measurement_trains_the_same(tmp_path, work):
    work["settings"] = SMALL | {"lr": 1e-3}
    one, other = (Island(InnerSteps.model_validate(work), 1, tmp_path) for _ in range(2))
    assert [one._step() for _ in range(3)] == [other._step() for _ in range(3)]


def test_a_shard_that_is_too_short_is_refused(tmp_path, work):
    (tmp_path / "corpus.bin").write_bytes(bytes(100))
    with pytest.raises(ValueError, match="batch 4: a shard of 0 bytes has only 0 windows of 16"):
        Island(InnerSteps.model_validate(work), 0, tmp_path)


def test_unknown_sizes_are_named(tmp_path, work):
    wrong = json.loads(json.dumps(work))
    wrong["settings"]["depth"] = 3
    with Processes(tmp_path, wrong) as processes:
        processes.start(0)
        status, stderr = processes.end(0, 30)
    assert status == 1
    assert "plan.json: work.training.settings.depth: Extra inputs" in stderr
