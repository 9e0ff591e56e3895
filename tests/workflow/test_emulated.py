"""The emulated tier end to end, on "measurements" that are replays of a known model.

Its truth is planted: the model that calibration should find, and emulated violations without error.
A run without calibration seeds has no such tier, and says so.
"""

import json

import numpy as np
import pandas as pd
import pytest
import yaml

from safesync import config as settings
from safesync.emulator import Contention, EngineModel, Limits, StepTime, Trace, Windows, simulate
from safesync.placement import Corridor
from safesync.policies.controls import control_facts, matched_random, probe
from safesync.policies.schedule import schedule_facts, schedule_rows
from safesync.tables import write_document
from safesync.tables.agreement import AGREEMENT
from safesync.tables.arrivals import ARRIVALS, arrivals_sha256
from safesync.tables.learners import LEARNERS
from safesync.tables.merges import MERGES
from safesync.tables.requests import REQUESTS
from safesync.tables.schedule import SCHEDULE
from safesync.tables.scores import SCORES
from safesync.tables.seeded_arrivals import SEEDED_ARRIVALS
from safesync.tables.telemetry import TELEMETRY
from safesync.workload.generate import generate
from workflow.project import Project

FIXED = {"id": "fixed_h_64", "policy": "fixed_h", "params": {"h": 64}}
PLANTED = {
    "run": "planted",
    "horizon_s": 60,
    "merge": {"merge_s": 4, "ranks": 2},
    "corridor": {"h_min": 32, "h_max": 128, "step_s": 0.125},
    "slo": {"threshold_s": 0.9},
    "seeds": {"calibration": [11], "tune": [12], "judge": [23]},
    "regimes": {"bursty": {"arrivals": {"family": "poisson", "rate_rps": 4}}},
    "policies": [
        FIXED,
        {"id": "random_deferral", "policy": "random_deferral", "measure": False},
    ],
    "claims": ["fixed_h_64"],
    "controls": {"draws": 2, "pool": 5, "repeats": {"fixed_h_64": 2}},
    "emulator": {"seeds": [101, 102], "draws": 20},
}
TRUTH = EngineModel(
    limits=Limits(max_num_seqs=64, max_model_len=1024),
    step=StepTime(base_s=0.012, per_decode_s=0.001, per_prefill_token_s=0.0002),
    contention=(Contention(factor=2.0),),
    client_overhead_s=0.004,
)
BUDGET = 5  # of fixed_h_64: 5 merges of 4 s after 8 s of steps each


class Run:
    """Tables of a run as measurements would leave them, written in the order of the stages."""

    def __init__(self, project: Project, values: dict):
        self.config = settings.load(values)
        self.folder = project.folder / "results" / self.config.run
        bounds = self.config.corridor.model_dump()
        self.corridor = Corridor(**bounds, merge_s=4.0, horizon_s=60.0)

    def place(self, table: str, seed: int, *more: str) -> str:
        name = "manifest.json" if table == "manifest" else "part.parquet"
        path = self.folder.joinpath(table, "regime=bursty", f"seed={seed}", *more, name)
        return str(path)

    def arrivals(self, seed: int) -> pd.DataFrame:
        regime = self.config.regimes["bursty"]
        rows, facts = generate(regime.arrivals, regime.tokens, 60.0, "bursty", seed)
        ARRIVALS.write(self.place("arrivals", seed), rows, facts)
        return rows

    def schedule(self, seed: int, policy: str, rows: pd.DataFrame, facts: dict) -> None:
        SCHEDULE.write(self.place("schedule", seed, f"policy={policy}"), rows, facts)

    def measure(
        self, seed: int, policy: str, draw: int, rows: pd.DataFrame, starts_s, lag_s: float = 0.0
    ) -> None:
        starts_s = np.asarray(starts_s, dtype=float)
        where = (f"policy={policy}", f"draw={draw}")
        windows = Windows.planned(starts_s, 4.0)
        replay = simulate(Trace.from_rows(rows), windows, TRUTH, chunks=True)
        REQUESTS.write(self.place("requests", seed, *where), replay.to_requests())
        merges = pd.DataFrame({name: np.zeros(len(starts_s)) for name in MERGES.schema.names})
        merges = merges.assign(merge=range(len(starts_s)), planned_s=starts_s, start_s=starts_s)
        merges = merges.assign(end_s=starts_s + 4.0, rounds=1, reduced_bytes=1)
        types = {f.name: f.type.to_pandas_dtype() for f in MERGES.schema}
        MERGES.write(self.place("merges", seed, *where), merges.astype(types))
        t_s = np.arange(0, 60, 0.2)
        telemetry = pd.DataFrame({name: np.zeros(len(t_s)) for name in TELEMETRY.schema.names})
        telemetry = telemetry.assign(
            t_s=t_s,
            network_bytes=np.arange(len(t_s), dtype=np.int64) * 200,
            disk_written_bytes=np.zeros(len(t_s), dtype=np.int64),
        )
        TELEMETRY.write(self.place("telemetry", seed, *where), telemetry)
        plain = self.config.model_dump(mode="json")
        manifest = {
            "run": self.config.run,
            "regime": "bursty",
            "seed": seed,
            "policy": policy,
            "draw": draw,
            "fingerprint": "planted",
            "kv_cache": {"block_size": 128, "blocks": 728},
            "horizon_s": 60.0,
            "config": {
                "sidecar": plain["sidecar"],
                "client": plain["client"],
                "merge": plain["merge"]
                | {"ranks": 2, "style": "blocking", "bandwidth_bytes_per_s": None, "passes": None},
                "background": {"load": None, "training": None},
                "model": plain["model"]["name"],
            },
            "arrivals_sha256": arrivals_sha256(rows),
            "figures": {"loop_lag_p99_s": lag_s, "prefix_hits": 0.0},
        }
        write_document(self.place("manifest", seed, *where), manifest)

    def learners(self, seed: int) -> None:
        rows = pd.DataFrame({"island": np.int32(0), "step": np.arange(1, 481, dtype=np.int64)})
        rows = rows.assign(loss=1.0, tokens=rows["step"] * 8, step_s=0.125)
        LEARNERS.write(self.folder / f"learners/seed={seed}/part.parquet", rows)


def planted(project: Project, values: dict) -> Run:
    """Return a run with all its measurements."""
    run = Run(project, values)
    for seed in run.config.seeds.calibration:
        rows = run.arrivals(seed)
        windows = probe(run.corridor, "bursty", seed)
        run.schedule(seed, "nosync", SCHEDULE.empty(), {"policy": "nosync"})
        run.schedule(seed, "probe", windows, {"policy": "probe"})
        run.measure(seed, "nosync", 0, rows, [])
        run.measure(seed, "probe", 0, rows, windows["start_s"])
    rows = run.arrivals(23)
    run.schedule(23, "nosync", SCHEDULE.empty(), {"policy": "nosync"})
    run.learners(23)
    run.measure(23, "nosync", 0, rows, [])
    gaps = np.full((2, BUDGET), 64)
    fixed = schedule_rows(run.corridor, gaps, "policy")
    facts = schedule_facts(run.corridor, BUDGET) | {"warnings": []}
    for policy in ("fixed_h_64", "random_deferral"):
        run.schedule(23, policy, fixed, facts | {"policy": policy})
    write_document(
        run.folder / "budgets/regime=bursty/seed=23.json",
        {"claims": {"fixed_h_64": BUDGET}, "budgets": [BUDGET]},
    )
    control = f"matched_random_{BUDGET}"
    drawn = matched_random(run.corridor, BUDGET, 5, "bursty", 23)
    run.schedule(
        23, control, drawn, control_facts("matched_random", run.corridor, BUDGET, "bursty", 23)
    )
    starts_s = run.corridor.starts(gaps[0])
    for draw in range(2):
        run.measure(23, "fixed_h_64", draw, rows, starts_s)
        starts_s_drawn = drawn[drawn["draw"] == draw]["start_s"]
        run.measure(23, control, draw, rows, starts_s_drawn, lag_s=9.0 * draw)  # draw 1: invalid
    return run


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
