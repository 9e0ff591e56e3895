"""A whole measurement with a background, on the paced server."""

import sys
from pathlib import Path

import pandas as pd
import psutil
import pytest

from safesync.config import Client, Cores, Merge, Sidecar
from safesync.sidecar import host
from safesync.sidecar.measure import Measurement
from safesync.sidecar.processes import Broken
from safesync.tables import read_document
from safesync.tables.arrivals import ARRIVALS
from safesync.tables.requests import REQUESTS
from safesync.tables.schedule import SCHEDULE
from safesync.tables.telemetry import TELEMETRY

LOAD = {
    "processes": 2,
    "cpu_share": 0.1,
    "network_bytes_per_s": 1e6,
    "disk_bytes_per_s": 0,
    "nice": 5,
}


TRAINING = {
    "settings": {"layers": 1, "width": 16, "heads": 2, "context": 16, "batch": 4},
    "step_s": 0.02,
    "decay_steps": 100,
}


@pytest.fixture
def measurement(tmp_path, monkeypatch):
    """Return a function that makes a 2-s measurement with a background and these merges."""
    monkeypatch.setattr(host, "LOCK", tmp_path / "lock")
    (tmp_path / "model").mkdir()
    arrivals = pd.DataFrame(
        {"request_id": range(4), "arrival_s": [0.1, 0.6, 1.1, 1.6]}
        | {"prompt_tokens": 8, "output_tokens": 4}
    )
    ARRIVALS.write(tmp_path / "arrivals.parquet", arrivals)
    outputs = ("requests", "merges", "telemetry")

    def make(background, starts_s=()):
        windows = [
            {"draw": 0, "merge": merge, "step": merge, "start_s": start_s, "reason": "policy"}
            for merge, start_s in enumerate(starts_s)
        ]
        rows = pd.DataFrame(windows, columns=SCHEDULE.schema.names)
        SCHEDULE.write(tmp_path / "schedule.parquet", rows)
        merge = Merge(merge_s=0.5, ranks=2, parameters=200_000, fragment_parameters=100_000)
        return Measurement(
            identity={"run": "r", "regime": "a", "seed": 1, "policy": "p", "draw": 0},
            horizon_s=2.0,
            sidecar=Sidecar(
                command=[
                    *(sys.executable, str(Path(__file__).parents[2] / "paced.py")),
                    *("--port", "{port}", "--model", "{name}"),
                ]
            ).model_dump(mode="json"),
            model_name="m",
            trust_remote_code=False,
            cores=Cores().model_dump(),
            client=Client(nice=0, drain_s=5).model_dump(),
            merge=merge.model_dump() | {"style": "blocking"},
            background=background,
            arrivals=tmp_path / "arrivals.parquet",
            schedule=tmp_path / "schedule.parquet",
            model=tmp_path / "model",
            **{name: tmp_path / f"{name}.parquet" for name in outputs},
            manifest=tmp_path / "manifest.json",
            scratch=tmp_path / "scratch",
            log_folder=tmp_path / "logs",
        )

    return make


def test_the_manifest_tells_what_the_background_did(measurement, tmp_path):
    measurement({"load": LOAD, "training": TRAINING}, starts_s=[0.75]).run()
    manifest = read_document(tmp_path / "manifest.json")
    beside = {process["name"]: process for process in manifest["background"]}
    names = [f"background {kind} {index}" for kind in ("load", "training") for index in (0, 1)]
    assert list(beside) == names
    assert [beside[name]["nice"] for name in names] == [5, 5, 19, 19]
    assert all(process["nice_granted"] for process in beside.values())
    # from the go, two seconds before t0, until the last answer
    assert all(process["seconds"] >= 3.5 for process in beside.values())
    for name in names[:2]:
        assert beside[name]["sent_bytes"] > 1e6
        assert "written_bytes" not in beside[name]
    for name in names[2:]:
        assert beside[name]["steps"] > 0
        # the merge of half a second holds the islands
        assert 0 < beside[name]["paused_s"] <= 0.6
    figures = manifest["figures"]
    assert figures["background_processes"] == 4
    assert 1e6 <= figures["background_network_bytes_per_s"] <= 2.01e6
    assert figures["background_steps_per_s"] > 0
    assert figures["merge_rounds_min"] >= 1
    assert manifest["config"]["background"] == {"load": LOAD, "training": TRAINING}
    assert not (tmp_path / "scratch").exists()


def test_without_a_load_nothing_is_started_and_the_manifest_says_so(measurement, tmp_path):
    measurement({"load": None, "training": None}).run()
    manifest = read_document(tmp_path / "manifest.json")
    assert manifest["background"] == []
    assert manifest["figures"]["background_processes"] == 0
    assert not list((tmp_path / "logs").glob("background*"))


def test_telemetry_goes_on_to_the_horizon_when_the_last_answer_came_long_before(
    measurement, tmp_path
):
    sparse = pd.DataFrame(
        {"request_id": [0], "arrival_s": [0.1]} | {"prompt_tokens": 8, "output_tokens": 4}
    )
    job = measurement({"load": None, "training": None})
    ARRIVALS.write(tmp_path / "arrivals.parquet", sparse)
    job.run()
    told = TELEMETRY.read(tmp_path / "telemetry.parquet")["t_s"]
    assert REQUESTS.read(tmp_path / "requests.parquet")["done_s"].max() < 1.0
    assert 1.6 <= told.max() <= 2.4


def test_a_background_process_that_dies_breaks_the_measurement(measurement, tmp_path):
    def kill_one(line):
        if line.endswith("s of load"):
            (victim,) = (
                child
                for child in psutil.Process().children(recursive=True)
                if child.cmdline()[-2:] == [str(tmp_path / "scratch" / "background_load.json"), "1"]
            )
            victim.kill()

    with pytest.raises(Broken, match=r"^background load 1 was killed by SIGKILL during the measu"):
        measurement({"load": LOAD, "training": None}).run(kill_one)
    assert not (tmp_path / "manifest.json").exists()
