"""One sentence that names file and field, no tables, and never the API key."""

import json
import time

import numpy as np
import pytest

from safesync.sidecar.client.plan import read_go, read_plan
from safesync.tables import TableError

GOOD = {
    "url": "http://127.0.0.1:1",
    "model": "m",
    "arrivals": "a",
    "requests": "r",
    "loop_lag": "l",
    "ready": "y",
    "go": "g",
    "stop_s": 10.0,
    "timeout_s": 5,
    "prompt_seed": 1,
    "prompt_ids": [0, 1000],
    "processes": 1,
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("url", "127.0.0.1:1"),
        ("model", ""),
        ("arrivals", 3),
        ("stop_s", 0),
        ("stop_s", "10"),
        ("timeout_s", -1.0),
        ("prompt_seed", -1),
        ("prompt_seed", 1.5),
        ("prompt_ids", [0, 255]),
        ("prompt_ids", [0]),
        ("processes", 0),
        ("processes", 1.0),
        ("processes", True),
        ("locust_stats", ""),
        ("surplus", 1),
    ],
)
def test_a_plan_names_the_field_that_is_wrong(tmp_path, field, value):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(GOOD | {field: value}))
    with pytest.raises(TableError, match=rf"plan\.json.*'{field}'.*expected"):
        read_plan(path)


def test_a_plan_names_the_field_that_is_missing(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({key: value for key, value in GOOD.items() if key != "model"}))
    with pytest.raises(TableError, match="no field 'model'"):
        read_plan(path)


def test_a_good_plan_is_read(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(GOOD))
    plan = read_plan(path)
    assert plan.prompt_ids == (0, 1000)
    assert plan.locust_stats is None


@pytest.mark.parametrize("t0_ns", ["soon", 1.5, 1])
def test_t0_must_lie_in_the_future(tmp_path, t0_ns):
    path = tmp_path / "go.json"
    path.write_text(json.dumps({"t0_ns": t0_ns}))
    with pytest.raises(TableError, match=r"go\.json.*'t0_ns'.*expected"):
        read_go(path, time.monotonic_ns())


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({"times": []}, "no rows"),
        ({"times": [0.0], "prompt_tokens": 0}, "'prompt_tokens'"),
        ({"times": [np.inf]}, "'arrival_s'"),
    ],
)
def test_arrivals_that_cannot_be_sent_are_refused(start_client, make_arrivals, rows, expected):
    client = start_client("http://127.0.0.1:1", make_arrivals(**rows), stop_s=1.0)
    run = client.finish()
    assert run.code == 2
    assert expected in run.output
    assert "Traceback" not in run.output
    assert not list(run.folder.glob("re*"))  # neither ready nor requests


@pytest.mark.parametrize("key", ["k3y-of-the-tests", "another-k3y"])
def test_the_key_is_sent_and_never_shown(measure, make_arrivals, key):
    """The right key is served; a wrong one, which the server repeats in its error, is not shown."""
    run = measure(make_arrivals([0.0]), {"key": key})
    if key == "another-k3y":
        assert list(run.requests["error"]) == ["HTTP 401: wrong key 'Bearer ***'"]
    else:
        assert list(run.requests["status"]) == ["ok"]
    text = run.output.encode() + b"".join(path.read_bytes() for path in run.folder.iterdir())
    assert key.encode() not in text


def test_a_key_that_is_no_header_is_refused_and_not_shown(start_client, make_arrivals):
    run = start_client("http://127.0.0.1:1", make_arrivals([0.0]), key="bad\nkey").finish()
    assert run.code == 2
    assert run.output == "client: SAFESYNC_API_KEY: expected printable ASCII characters only\n"
