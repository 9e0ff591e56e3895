"""The emulated tier end to end, on "measurements" that are replays of a known model.

Its truth is planted: the model that calibration should find, and emulated violations without error.
A run without calibration seeds has no such tier, and says so.
"""

import json

import pytest
import yaml

from safesync.policies.controls import probe
from safesync.tables import write_document
from safesync.tables.agreement import AGREEMENT
from safesync.tables.requests import REQUESTS
from safesync.tables.scores import SCORES
from safesync.tables.seeded_arrivals import SEEDED_ARRIVALS
from workflow.planted import BUDGET, PLANTED, planted
from workflow.project import Project


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("emulated"))
    run = planted(project, PLANTED)
    config = project.config("planted", **PLANTED)
    targets = [
        "results/planted/scores/tier_emulator/controls.parquet",
        "results/planted/scores/tier_emulator/policy_fixed_h_64.parquet",
        "results/planted/scores/tier_emulator/policy_random_deferral.parquet",
        "results/planted/agreement/regime=bursty/part.parquet",
        "results/planted/transfer/regime=bursty.json",
        "results/planted/explore/table.txt",
    ]
    # explore takes the model of a run, and says so before there is one
    status, said = project.run("explore", config=config)
    assert status != 0
    assert "model.json: not there; explore measures and trains nothing" in said
    first = [
        f"results/planted/{name}.json"
        for name in ("model/regime=bursty/model", "slo/regime=bursty")
    ]
    for some in (first, targets):
        status, said = project.run(*some, config=config)
        assert status == 0, said
        assert "rule measure:" not in said
    yield run, said
    project.stop()


def document(run, name):
    return json.loads((run.folder / name).read_text())


def test_calibration_finds_the_planted_model_and_keeps_its_identity(emulated):
    run, _ = emulated
    found = document(run, "model/regime=bursty/model.json")
    assert found["calibrated"] is True
    assert found["settings"]["merge"]["ranks"] == 2
    assert found["settings"]["sidecar"]["max_num_seqs"] == 64
    assert found["fingerprint"] == "planted"
    limits = found["model"]["limits"]
    assert (limits["block_size"], limits["kv_blocks"]) == (128, 727)
    assert found["model"]["step"]["base_s"] == pytest.approx(0.012, rel=0.05)
    assert found["model"]["contention"][0]["factor"] == pytest.approx(2.0, rel=0.05)
    assert found["network_bytes_per_s"] == pytest.approx(1000)
    assert found["load"]["prompt_tokens"] == [64, 64]


def test_every_policy_has_all_blocks_and_draws(emulated):
    run, _ = emulated
    for policy in ("fixed_h_64", "random_deferral"):
        rows, facts = SCORES.read_with_metadata(
            run.folder / f"scores/tier_emulator/policy_{policy}.parquet"
        )
        assert set(rows["tier"]) == {"emulator"}
        assert dict(rows.groupby("seed")["capture"].first()) == {
            23: "vllm",
            101: "emulator",
            102: "emulator",
        }
        counts = rows.groupby(["seed", "policy"]).size().unstack()
        assert set(counts.columns) == {policy, "matched_spacing"}
        assert (counts["matched_spacing"] == 20).all()
        assert (counts[policy] == 1).all()
        assert rows["feasible"].all()
        assert facts["warnings"] == {"bursty": []}


def test_the_controls_hold_every_budget_once_for_all_policies(emulated):
    run, _ = emulated
    rows = SCORES.read(run.folder / "scores/tier_emulator/controls.parquet")
    assert not rows.duplicated(["seed", "policy", "budget", "draw"]).any()
    for seed in (23, 101, 102):
        mine = rows[rows["seed"] == seed]
        drawn = mine[mine["policy"] == "matched_random"].groupby("budget").size()
        assert drawn.to_dict() == dict.fromkeys(run.corridor.grid.budgets(), 20)
        assert mine["policy"].value_counts()["nosync"] == 1
        assert mine["policy"].nunique() == 2
    measured = run.folder / "requests/regime=bursty/seed=23"
    late = REQUESTS.read(measured / f"policy=matched_random_{BUDGET}/draw=0/part.parquet")
    violations = ((late["done_s"] - late["arrival_s"]) > 0.9).sum()
    twin = rows[(rows["seed"] == 23) & (rows["budget"] == BUDGET) & (rows["draw"] == 0)].iloc[0]
    assert abs(twin["violations"] - violations) <= 2
    assert len(run.corridor.grid.budgets()) == 5


def test_emulated_and_measured_replays_of_one_schedule_agree(emulated):
    run, said = emulated
    rows = AGREEMENT.read(run.folder / "agreement/regime=bursty/part.parquet")
    rates = rows[rows["figure"] == "violation_rate"]
    assert rates["measured"].max() > 0.02
    assert rates["error"].abs().max() < 0.02
    assert len(rates) == 4  # nosync, twice fixed_h_64, the valid draw
    assert rates["schedule"].nunique() == 3
    found = document(run, "agreement_summary/regime=bursty.json")
    left_out = "The agreement leaves out 1 of 5 real replays: measured outside the limits."
    assert found["warnings"] == [left_out]
    assert left_out in said
    summary = found["agreement"]
    assert (summary["replays"], summary["schedules"], summary["repeated"]) == (3, 2, 1)
    assert summary["noise_points"] == 0.0
    assert summary["sentence"] in said
    own = SCORES.read(run.folder / "scores/tier_emulator/policy_fixed_h_64.parquet")
    own = own[(own["policy"] == "fixed_h_64") & (own["seed"] == 23)].iloc[0]
    twin = rates[rates["policy"] == "fixed_h_64"].iloc[0]
    assert own["violation_rate"] == twin["emulated"]


def test_transfer_counts_its_windows(emulated):
    run, _ = emulated
    gate = document(run, "transfer/regime=bursty.json")["gate"]
    merges = len(probe(run.corridor, "bursty", 11)) + 2 * BUDGET
    assert merges < 20
    assert gate["passed"] is None
    assert f"{merges} merge windows" in gate["sentence"]


def test_explore_looks_at_tune_seeds_only(emulated):
    run, said = emulated
    for policy in ("fixed_h_64", "random_deferral"):
        rows = SCORES.read(run.folder / f"explore/policy_{policy}.parquet")
        assert set(rows["seed"]) == {12}
        assert set(rows["role"]) == {"tune"}
    table = (run.folder / "explore/table.txt").read_text()
    assert "random_deferral" in table
    assert "explore: " + table.splitlines()[1] in said


def test_without_captures_the_tier_is_absent_and_nothing_fails(tmp_path):
    project = Project(tmp_path)
    values = PLANTED | {"run": "bare", "seeds": {"calibration": [], "tune": [], "judge": [23]}}
    run = planted(project, values)
    config = project.config("bare", **yaml.safe_load(yaml.safe_dump(values)))
    status, said = project.run(
        "results/bare/scores/tier_emulator/policy_fixed_h_64.parquet",
        "results/bare/agreement/regime=bursty/part.parquet",
        "results/bare/transfer/regime=bursty.json",
        config=config,
    )
    assert status == 0, said
    why = "seeds.calibration is empty, so there is no capture to calibrate on."
    model = document(run, "model/regime=bursty/model.json")
    assert model == {"version": 2, "calibrated": False, "regime": "bursty", "why": why}
    rows = SCORES.read(run.folder / "scores/tier_emulator/policy_fixed_h_64.parquet")
    assert rows.empty
    assert document(run, "agreement_summary/regime=bursty.json")["agreement"] is None
    status, said = project.run("explore", config=config)
    assert status != 0
    assert "seeds.tune is empty; expected seeds to iterate on" in said
    write_document(run.folder / "model/regime=bursty/model.json", model | {"version": 1})
    status, said = project.run("results/bare/explore/controls.parquet", config=config)
    assert status != 0
    assert "model.json: a model of version 1, expected version 2; calibrate again" in said


def test_a_trace_serves_as_many_emulated_seeds_as_it_has_slices(tmp_path):
    project = Project(tmp_path)
    rows = "".join(f"{i / 2}\n" for i in range(2 * 60 * 4 + 1))  # 4 slices of 60 s
    (tmp_path / "trace.csv").write_text("arrival_s\n" + rows)
    trace = {"arrivals": {"family": "trace", "path": "trace.csv"}}
    config = project.config("traced", **PLANTED | {"regimes": {"bursty": trace}})
    place = "results/planted/emulated_arrivals/role=judge/regime=bursty/part.parquet"
    status, said = project.run(place, config=config)
    assert status == 0, said
    found, facts = SEEDED_ARRIVALS.read_with_metadata(tmp_path / place)
    # three seeds of the config have a slice each, so one of 101 and 102 is left with one
    assert facts["seeds"] == [101]
    assert set(found["seed"]) == {101}
    assert len(found) == 120
    assert "slices of its own for 1 of 2 seeds that are only emulated" in said
