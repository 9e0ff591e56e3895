import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from safesync.sidecar import host
from safesync.sidecar.figures import figures
from safesync.sidecar.host import core_map, environment, machine_to_oneself
from safesync.sidecar.processes import Broken
from safesync.tables import write_document
from safesync.tables.merges import MERGES
from safesync.tables.telemetry import TELEMETRY


def requests(lateness):
    arrival = np.arange(len(lateness), dtype=float)
    return pd.DataFrame(
        {"arrival_s": arrival, "sent_s": arrival + lateness, "status": ["ok"] * len(lateness)}
    )


def merges(**changes):
    row = dict.fromkeys(MERGES.schema.names, 0) | {
        "planned_s": 10.0,
        "start_s": 10.02,
        "end_s": 18.1,
        "rounds": 7,
        "reduce_s": 1.25,
        "optimizer_s": 0.1,
        "reduced_bytes": 100,
        "written_bytes": 200,
    }
    return pd.DataFrame([row, row | {"planned_s": 30.0, "start_s": 29.9, "end_s": 37.9} | changes])


def telemetry(hits=(5.0, 5.0, 5.0)):
    rows = pd.DataFrame({name: [0.0] * len(hits) for name in TELEMETRY.schema.names})
    rows["prefix_hits_total"] = hits
    return rows


LAG = pd.DataFrame({"t_s": [0.0, 0.05], "lag_s": [0.001, 0.003]})


def test_figures_of_a_known_measurement(tmp_path):
    late = np.full(200, 0.001)
    late[:3] = 0.5
    found = figures(requests(late), merges(), telemetry(), LAG, [])
    assert found["lateness_p50_s"] == pytest.approx(0.001)
    assert found["lateness_p99_s"] == pytest.approx(0.5)
    assert found["merge_start_error_s"] == pytest.approx(0.1)
    assert found["merge_seconds"] == pytest.approx(8.08 + 8.0)
    assert found["merge_longest_s"] == pytest.approx(8.08)
    assert found["reduced_bytes"] == 200
    assert found["reduced_bytes_per_s"] == pytest.approx(200 / 16.08)
    assert found["merge_delay_s"] == pytest.approx((2.5 + 0.2) / 14)
    assert found["prefix_hits"] == 0
    assert found["never_sent"] == found["failed"] == 0
    write_document(tmp_path / "a.json", found)


def test_a_request_that_was_never_sent_is_infinitely_late():
    late = np.zeros(100)
    late[[3, 4]] = np.nan
    found = figures(requests(late), MERGES.empty(), telemetry(), LAG, [])
    assert found["never_sent"] == 2
    assert found["lateness_p99_s"] is None
    assert found["merge_rounds_min"] == 0
    assert found["merge_delay_s"] is found["reduced_bytes_per_s"] is None


def test_figures_of_the_background_are_those_of_all_its_processes():
    did = {"seconds": 10.0, "cpu_s": 5.0, "sent_bytes": 100, "written_bytes": 0, "fsync_s": 0.25}
    island = {"seconds": 10.0, "cpu_s": 4.0, "steps": 80}
    found = figures(requests(np.zeros(3)), merges(), telemetry(), LAG, [did, did, island])
    assert found["background_processes"] == 3
    assert found["background_cpu_share"] == pytest.approx(1.4)
    assert found["background_steps_per_s"] == pytest.approx(8.0)
    assert found["background_network_bytes_per_s"] == pytest.approx(20.0)
    assert found["background_disk_bytes_per_s"] == 0
    assert found["background_fsync_s"] == 0.5


def test_prefix_hits_count_from_the_start_of_load():
    found = figures(requests(np.zeros(3)), merges(), telemetry((5.0, 6.0, 9.0)), LAG, [])
    assert found["prefix_hits"] == 4
    found = figures(requests(np.zeros(3)), merges(), telemetry((np.nan,) * 3), LAG, [])
    assert found["prefix_hits"] is None


def test_cores_default_to_all_that_are_allowed():
    available = sorted(os.sched_getaffinity(0))
    asked = {"sidecar": None, "client": available[-1:], "ranks": None}
    assert core_map(asked) == {
        "sidecar": available,
        "client": available[-1:],
        "ranks": available,
    }
    with pytest.raises(Broken, match=r"config cores\.ranks: core 99999 is not available here"):
        core_map(asked | {"ranks": [99999]})


def test_the_fingerprint_is_that_of_this_boot_and_these_versions(monkeypatch):
    here = environment()
    assert environment()["fingerprint"] == here["fingerprint"]
    assert here["versions"]["locust"] == "2.47.0"
    monkeypatch.setattr("safesync.sidecar.host._cpu_model", lambda: "another")
    assert environment()["fingerprint"] != here["fingerprint"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_measurements_of_several_users_share_the_lock(monkeypatch):
    folder = Path(tempfile.mkdtemp())  # pytest's own cannot be entered by others
    folder.chmod(0o1777)
    monkeypatch.setattr(host, "LOCK", folder / "lock")
    before = os.umask(0o077)
    try:
        with machine_to_oneself(lambda: None):
            waits = _as_another_user(folder)
            assert waits == "waits"
        assert _as_another_user(folder) == "has it"
    finally:
        os.umask(before)
        shutil.rmtree(folder)


def _as_another_user(folder: Path) -> str:
    """Ask for the lock in a process of user 65534; return what came of it."""
    told = folder / f"told.{time.monotonic_ns()}"
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        try:
            with machine_to_oneself(lambda: (told.write_text("waits"), os._exit(0))):
                told.write_text("has it")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return told.read_text() if told.exists() else "failed"


def test_two_measurements_never_share_a_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "LOCK", tmp_path / "lock")
    told, order = [], []

    def second():
        with machine_to_oneself(lambda: told.append("waits")):
            order.append("second")

    with machine_to_oneself(lambda: told.append("first waits")):
        thread = threading.Thread(target=second)
        thread.start()
        while not told:
            time.sleep(0.01)
        order.append("first")
    thread.join(5)
    assert told == ["waits"]
    assert order == ["first", "second"]
