"""Measured spacing through Snakemake: its schedules, what reruns for it, and what it becomes."""

import json

import numpy as np
import pandas as pd
import pytest

from safesync.placement import Corridor
from safesync.policies.controls import matched_spacing
from safesync.policies.schedule import repeated, schedule_rows
from safesync.tables import write_document
from safesync.tables.agreement import AGREEMENT
from safesync.tables.arrivals import ARRIVALS
from safesync.tables.schedule import SCHEDULE
from safesync.tables.scores import SCORES
from workflow.planted import BUDGET, FIXED, PLANTED, planted
from workflow.project import SMALL, Project, planned

FREE = {"id": "free", "policy": "random_deferral"}
CLAIMS = ["fixed_h_64", "free"]
GAPS = np.array([48, 72, 64, 80, 56])  # as many inner steps in all as FIXED has
PLACE = "results/small/schedule/regime=bursty/seed=1/policy={}/part.parquet"


@pytest.fixture
def project(tmp_path):
    project = Project(tmp_path)
    yield project
    project.stop()


def spacing_of(project, own, *, horizon_s=12):
    """Run schedule_spacing on a claim's schedule; return rows, facts, corridor and what it said."""
    values = SMALL | {
        "horizon_s": horizon_s,
        "policies": [{"id": "calm", "policy": "fixed_h", "params": {"h": 24}}],
        "claims": ["calm"],
        "controls": {"draws": 1, "pool": 7, "spacing": 2},
    }
    config = project.config("small", **values)
    SCHEDULE.write(project.folder / PLACE.format("calm"), own, {"policy": "fixed_h"})
    made = PLACE.format("matched_spacing_calm")
    status, said = project.run(made, "--allowed-rules", "schedule_spacing", config=config)
    assert status == 0, said
    corridor = Corridor(**SMALL["corridor"], merge_s=2, horizon_s=horizon_s)
    return *SCHEDULE.read_with_metadata(project.folder / made), corridor, said


def test_all_orders_of_a_claims_gaps_that_could_be_asked_for_are_written(project):
    corridor = Corridor(**SMALL["corridor"], merge_s=2, horizon_s=12)
    gaps = np.array([20, 24, 32])
    own = repeated(schedule_rows(corridor, gaps[None, :], "policy"), 2)
    rows, facts, _, _ = spacing_of(project, own)
    pd.testing.assert_frame_equal(rows, matched_spacing(corridor, gaps, 7, "bursty", 1))
    assert set(rows["draw"]) == set(range(7))
    assert rows["step"].groupby(rows["draw"]).max().eq(gaps.sum()).all()
    assert (facts["policy"], facts["spacing_of"]) == ("matched_spacing", "calm")
    assert (facts["budget"], facts["arrangements"], facts["seed"]) == (3, 6, 1)


def test_a_claim_without_merges_has_orders_without_merges(project):
    # a merge is forced after 3 s, and would not end within 4 s
    rows, facts, corridor, _ = spacing_of(project, SCHEDULE.empty(), horizon_s=4)
    assert corridor.feasible(np.empty(0, dtype=np.int64)) is None
    assert rows.empty
    assert (facts["budget"], facts["arrangements"]) == (0, 1)


def test_a_claim_outside_the_corridor_stands_for_its_own_orders(project):
    corridor = Corridor(**SMALL["corridor"], merge_s=2, horizon_s=12)
    own = schedule_rows(corridor, np.array([[8, 40, 20]]), "policy")
    rows, facts, _, said = spacing_of(project, own)
    assert rows["start_s"].tolist() == own["start_s"].tolist() * 7
    assert set(rows["reason"]) == {"control"}
    told = "other orders of calm are its own: merge 1 of 3 has a gap of 8 steps, below h_min = 16."
    assert facts["warnings"][-1] == told
    assert f"warning: {told}" in said


def test_orders_are_made_of_claims_alone(project):
    config = project.config("small", **SMALL | {"claims": ["fixed_h_24"]})
    made = PLACE.format("matched_spacing_{}")
    assert project.run("-n", made.format("fixed_h_24"), config=config)[0] == 0
    status, said = project.run("-n", made.format("fixed_h_48"), config=config)
    assert status != 0
    assert "MissingRuleException" in said


def test_orders_are_known_before_any_budget_and_none_unless_asked_for(project):
    for spacing in (0, 1):
        controls = {"spacing": spacing}
        config = project.config("small", **SMALL | {"claims": ["fixed_h_24"], "controls": controls})
        for target in ("schedules", "all"):
            jobs = planned(project, config, target=target)
            assert ("schedule_spacing" in jobs) == bool(spacing)
            measured = {"measure matched_spacing_fixed_h_24 0"} & jobs
            assert len(measured) == (spacing if target == "all" else 0)


@pytest.fixture(scope="module")
def spaced(tmp_path_factory):
    """A finished run of two claims of the same budget, before and after spacing is asked for."""
    project = Project(tmp_path_factory.mktemp("spaced"))
    values = PLANTED | {
        "run": "spaced",
        "policies": [FIXED, FREE],
        "claims": CLAIMS,
        "parity": {"seeds": []},
        "controls": {"draws": 2, "pool": 5},
        "emulator": {"seeds": [], "draws": 20},
    }
    # nothing is measured, but a measurement that is planned must not ask for the model first
    model = project.folder / "resources/models/smollm2-135m-instruct.json"
    model.parent.mkdir(parents=True)
    model.write_text("{}")
    run = planted(project, values)
    free = schedule_rows(run.corridor, GAPS[None, :], "policy")
    facts = {"policy": "random_deferral", "warnings": []}
    run.schedule(23, "free", free, facts)
    claims = dict.fromkeys(CLAIMS, BUDGET)
    write_document(
        run.folder / "budgets/regime=bursty/seed=23.json", {"claims": claims, "budgets": [BUDGET]}
    )
    arrivals = ARRIVALS.read(run.place("arrivals", 23))
    run.measure(23, "free", 0, arrivals, free["start_s"])
    drawn = SCHEDULE.read(run.place("schedule", 23, f"policy=matched_random_{BUDGET}"))
    starts_s = drawn.loc[drawn["draw"] == 1, "start_s"]
    run.measure(23, f"matched_random_{BUDGET}", 1, arrivals, starts_s)
    config = project.config("spaced", **values)
    status, said = project.run(config=config)
    assert status == 0, said
    assert "rule measure:" not in said
    before = document(run)
    values["controls"] = values["controls"] | {"spacing": 2}
    config = project.config("spaced", **values)
    jobs = planned(project, config)
    status, said = project.run("schedules", config=config)
    assert status == 0, said
    for claim in CLAIMS:
        orders = SCHEDULE.read(run.place("schedule", 23, f"policy=matched_spacing_{claim}"))
        for draw in range(2):
            # one replay of one claim is invalid
            late_s = 9.0 * (claim == "free" and draw == 1)
            starts_s = orders.loc[orders["draw"] == draw, "start_s"]
            run.measure(23, f"matched_spacing_{claim}", draw, arrivals, starts_s, lag_s=late_s)
    status, said = project.run(config=config)
    assert status == 0, said
    assert "rule measure:" not in said
    yield project, run, before, jobs
    project.stop()


def document(run):
    return json.loads((run.folder / "verdict.json").read_text())


def real(verdict):
    return {one["policy"]: one for one in verdict["verdicts"] if one["tier"] == "vllm"}


def gates(result):
    return {gate["name"]: gate for gate in result["gates"]}


def test_asking_for_spacing_reruns_what_reads_it_and_nothing_else(spaced):
    _, _, _, jobs = spaced
    orders = {f"measure matched_spacing_{claim} {draw}" for claim in CLAIMS for draw in range(2)}
    assert jobs == {"schedule_spacing", *orders, "agreement", "score", "judge", "report"}


def test_two_claims_orders_are_rows_of_their_own(spaced):
    _, run, _, _ = spaced
    rows = SCORES.read(run.folder / "scores/tier_vllm/regime_bursty/seed_23.parquet")
    orders = rows[rows["policy"] == "matched_spacing"]
    found = orders[["control_of", "draw", "budget", "valid", "feasible"]].to_numpy().tolist()
    assert found == [
        ["fixed_h_64", 0, BUDGET, True, True],
        ["fixed_h_64", 1, BUDGET, True, True],
        ["free", 0, BUDGET, True, True],
        ["free", 1, BUDGET, False, True],
    ]
    assert rows.loc[rows["policy"] != "matched_spacing", "control_of"].isna().all()


def test_the_agreement_leaves_out_the_invalid_one_of_the_two_claims(spaced):
    _, run, _, _ = spaced
    rows = AGREEMENT.read(run.folder / "agreement/regime=bursty/part.parquet")
    rates = rows[rows["figure"] == "violation_rate"]
    named = rates["policy"] + " " + rates["draw"].astype(str)
    assert [name for name in named if name.startswith("matched_spacing")] == [
        "matched_spacing_fixed_h_64 0",
        "matched_spacing_fixed_h_64 1",
        "matched_spacing_free 0",
    ]


def test_the_gate_of_a_claim_rests_on_its_own_orders(spaced):
    _, _, before, _ = spaced
    for result in real(before).values():
        gate = gates(result)["matched spacing"]
        assert (gate["applies"], result["spacing"]) == (False, None)
        assert "controls.spacing" in gate["sentence"]
    after = real(document(spaced[1]))
    fixed, free = (gates(after[claim]) for claim in CLAIMS)
    # a fixed period is its own orders: the same schedule on the same engine
    assert after["fixed_h_64"]["spacing"]["points"] == 0
    assert (fixed["matched spacing"]["applies"], fixed["matched spacing"]["passed"]) == (
        True,
        False,
    )
    assert fixed["measurement valid"]["passed"] is True
    assert (after["free"]["verdict"], free["measurement valid"]["passed"]) == ("REFUSED", False)
    assert "matched_spacing draw 1, seed 23" in free["measurement valid"]["sentence"]


def test_the_page_names_them_and_warns_of_a_rhythm_without_another_order(spaced):
    _, run, _, _ = spaced
    text = (run.folder / "report/index.html").read_text()
    for claim, draws in (("fixed_h_64", "01"), ("free", "0")):
        for draw in draws:
            assert f"matched_spacing_{claim} draw {draw}, seed 23: " in text
    assert "the gaps of fixed_h_64 have one order only" in text
