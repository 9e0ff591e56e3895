import json
from pathlib import Path

import pytest

from safesync.config import ConfigError, load, read
from safesync.plan import (
    check_traces,
    disk_bytes,
    done,
    emulated_replays,
    main,
    measurements,
    progress,
    requests,
    sentence,
)


def test_the_default_run_is_eight_measurements():
    # calibration: nosync, probe; judged: nosync, fixed_h_256, wa_diloco, three draws
    assert measurements(read("config/config.yaml")) == (8, 8)


def test_claims_share_the_draws_of_a_budget():
    policies = [{"id": f"fixed_{h}", "policy": "fixed_h", "params": {"h": h}} for h in (200, 256)]
    config = load(
        {
            "policies": policies,
            "claims": ["fixed_200", "fixed_256"],
            "seeds": {"calibration": [1], "judge": [2, 3]},
            "controls": {"draws": 5},
        }
    )
    # 2 captures of calibration; per judged seed nosync, 2 policies, 5 to 10 draws
    assert measurements(config) == (2 + 2 * 8, 2 + 2 * 13)


def test_repeats_are_counted():
    # calibration: nosync, probe; per judged seed 3 x nosync, 3 x fixed_h_256, 3 draws
    assert measurements(read("config/validation.yaml")) == (2 + 3 * 9, 2 + 3 * 9)


def test_other_orders_are_counted_per_judged_block_and_claim():
    policies = [{"id": f"fixed_{h}", "policy": "fixed_h", "params": {"h": h}} for h in (200, 256)]
    values = {
        "policies": policies,
        "seeds": {"calibration": [1], "judge": [2, 3, 4]},
        "regimes": {"one": {}, "two": {}},
        "controls": {"draws": 2},
    }

    def most(claims, spacing):
        controls = values["controls"] | {"spacing": spacing}
        return measurements(load(values | {"claims": claims, "controls": controls}))[1]

    both = ["fixed_200", "fixed_256"]
    # 2 regimes with 3 judged blocks each
    assert most(both, 4) - most(both, 0) == 2 * 3 * 2 * 4
    assert most(both[:1], 1) - most(both[:1], 0) == 2 * 3
    assert most([], 4) == most([], 0)


def test_what_is_there_is_counted(tmp_path):
    config = read("config/smoke.yaml")
    folder = tmp_path / "smoke/manifest/regime=bursty/seed=23/policy=nosync/draw=0"
    folder.mkdir(parents=True)
    assert done(config, tmp_path) == 0
    Path(folder / "manifest.json").write_text("{}")
    assert done(config, tmp_path) == 1
    assert "run 'smoke': 4 measurements of 30 s" in sentence(config, tmp_path)
    assert "Results of 1 are there" in sentence(config, tmp_path)


def test_progress_counts_what_is_there(tmp_path):
    config = read("config/smoke.yaml")
    assert progress(config, tmp_path) == "replay 1 of 4, about 5 min left"
    for number in range(6):
        folder = tmp_path / f"smoke/manifest/regime=bursty/seed={number}"
        folder.mkdir(parents=True)
        Path(folder / "manifest.json").write_text("{}")
        told = ("2 of 4, about 4 min", "3 of 4, about 3 min", "4 of 4, about 1 min")
        assert progress(config, tmp_path) == f"replay {told[min(number, 2)]} left"


def test_disk_is_that_of_measurements_requests_and_emulated_rows():
    config = load(
        {
            "slo": {"threshold_s": 1},
            "seeds": {"calibration": [], "tune": [], "judge": [1, 2]},
            "regimes": {"steady": {"arrivals": {"family": "poisson", "rate_rps": 2}}},
            "policies": [{"id": "fixed", "policy": "fixed_h", "params": {"h": 256}}],
            "claims": [],
            "emulator": {"seeds": [], "draws": 10},
        }
    )
    # two captures and two replays of 100 s with 200 requests; in 2 blocks 10 draws, of the policy's
    # own control and of the budgets 2 to 6: a merge 40 s after the other, or 16 s
    assert emulated_replays(config) == (20, 100)
    assert disk_bytes(config) == (
        5_000_000 + 4 * (35_000 + 100 * 160 + 200 * 180) + (20 + 100) * 31,
        20_000_000 * 8,
    )
    assert "Disk: about 5 MB of results, and 160 MB more while" in sentence(config, Path("none"))


def test_a_trace_has_as_many_requests_as_its_target_asks_for():
    trace = {"family": "trace", "path": "a.csv"}
    scaled = trace | {"scaling": "thin", "target_rps": 3}
    config = load({"regimes": {"a": {"arrivals": trace}, "b": {"arrivals": scaled}}})
    assert requests(config.regimes["a"], 50) is None
    assert requests(config.regimes["b"], 50) == 150


def told(tmp_path, capsys, trace: Path) -> str:
    """Return what the command says of a config whose arrivals are those of ``trace``."""
    path = tmp_path / "mine.yaml"
    arrivals = {"family": "trace", "path": str(trace)}
    path.write_text(json.dumps({"run": "mine", "regimes": {"a": {"arrivals": arrivals}}}))
    try:
        main(str(path))
    except SystemExit as stopped:
        return stopped.code  # a string: the status is 1, and the string is printed
    return capsys.readouterr().out


def test_a_trace_that_cannot_be_read_is_no_plan(tmp_path, capsys):
    trace = tmp_path / "trace.csv"
    field = f"{tmp_path}/mine.yaml: regimes.a.arrivals.path: {trace}"
    expected = "expected a trace of requests"
    assert told(tmp_path, capsys, trace) == f"{field}: no such file; {expected}"
    trace.write_text("")
    assert told(tmp_path, capsys, trace) == f"{field}: the file is empty; {expected}"
    trace.write_text("arrival_s\n0.5\n")
    assert told(tmp_path, capsys, trace).startswith("run 'mine': 8 measurements of 100 s")


def test_a_trace_of_lengths_is_looked_for_too():
    output = {"law": "empirical", "path": "absent.csv", "column": "output", "max": 64}
    config = load({"regimes": {"a": {"tokens": {"output": output}}}})
    with pytest.raises(ConfigError) as caught:
        check_traces(config, "mine.yaml")
    assert str(caught.value) == (
        "mine.yaml: regimes.a.tokens.output.path: absent.csv: no such file; expected a trace of "
        "requests"
    )
