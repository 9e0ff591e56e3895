"""A wall clock that is set back by an hour in the middle of the load changes no figure."""

import time

import pytest
from workflow.measuring import MANIFEST, QUICK, outputs_of, reached
from workflow.project import wait_until

from safesync.tables import read_document
from safesync.tables.requests import REQUESTS
from safesync.tables.telemetry import TELEMETRY

# every Python process of the measurement runs this first
STEP = """\
import os, sys, time
if sys.orig_argv[1:3] != ["-m", "snakemake"]:
    _here = os.path.dirname(os.path.abspath(__file__))
    def _set_back(read, hour):
        def stepped():
            now = read()
            if not os.path.exists(_here + "/step"):
                return now
            open(f"{_here}/seen.{os.getpid()}", "a").close()
            return now - hour
        return stepped
    time.time = _set_back(time.time, 3600.0)
    time.time_ns = _set_back(time.time_ns, 3600 * 10**9)
"""


def test_a_step_of_the_wall_clock_leaves_the_measurement_as_it_is(project, tmp_path):
    injected = tmp_path / "injected"
    injected.mkdir()
    (injected / "sitecustomize.py").write_text(STEP)
    path = f"{injected}:{project.folder / 'src'}"
    config = project.config("small", **QUICK)
    snakemake = reached(project, config, environment={"PYTHONPATH": path})
    client = project.process("safesync.sidecar.client")
    time.sleep(5)  # the load begins two seconds after the go
    (injected / "step").touch()
    wait_until(lambda: snakemake.poll() is not None, 90, "the run's end")
    assert snakemake.returncode == 0, project.said()
    # the step was really made, in the process whose times count
    assert (injected / f"seen.{client.pid}").exists()
    requests, _, telemetry, _ = [project.folder / name for name in outputs_of(MANIFEST)]
    rows = REQUESTS.read(requests)
    assert (rows["status"] == "ok").all()
    assert (rows["sent_s"] - rows["arrival_s"]).between(0, 2).all()
    assert (rows["done_s"] - rows["arrival_s"]).between(0.05, 5).all()
    assert TELEMETRY.read(telemetry)["t_s"].diff().dropna().between(0, 5).all()
    figures = read_document(project.folder / MANIFEST)["figures"]
    assert figures["merge_start_error_s"] < 1
    assert figures["merge_shortest_s"] == pytest.approx(2, abs=1)
