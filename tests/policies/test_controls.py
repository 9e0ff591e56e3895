"""Controls: uniform over the feasible set, stable by prefix, apart from each other."""

import hashlib
import itertools
import json

import numpy as np
import pytest
from scipy import stats

from safesync.placement import Corridor
from safesync.policies.controls import (
    arrangements,
    control_facts,
    matched_random,
    matched_spacing,
    probe,
    spacing_facts,
)
from safesync.policies.schedule import first_draw, repeated
from safesync.tables.schedule import SCHEDULE

SMALL = Corridor(h_min=2, h_max=5, step_s=1.0, merge_s=2.0, horizon_s=16.0)


def gaps_of(rows, budget):
    return np.diff(rows["step"].to_numpy().reshape(-1, budget), prepend=0, axis=1)


def enumerated(budget):
    every = itertools.product(range(2, 6), repeat=budget)
    return [gaps for gaps in every if SMALL.feasible(np.array(gaps, dtype=np.int64)) is None]


@pytest.mark.parametrize("budget", [2, 3])
def test_matched_random_is_uniform_over_all_feasible_schedules(budget):
    feasible = enumerated(budget)
    assert len(feasible) == SMALL.count(budget) > 3
    rows = matched_random(SMALL, budget, 60 * len(feasible), "steady", 3)
    seen = [tuple(row) for row in gaps_of(rows, budget).tolist()]
    counts = [seen.count(gaps) for gaps in feasible]
    assert sum(counts) == len(seen)
    assert stats.chisquare(counts).pvalue > 0.001


def test_probe_is_uniform_over_the_schedules_of_all_budgets():
    feasible = [gaps for budget in SMALL.grid.budgets() for gaps in enumerated(budget)]
    seen = [
        tuple(np.diff(probe(SMALL, "steady", seed)["step"], prepend=0).tolist())
        for seed in range(20 * len(feasible))
    ]
    counts = [seen.count(gaps) for gaps in feasible]
    assert sum(counts) == len(seen)
    assert stats.chisquare(counts).pvalue > 0.001


def test_draw_k_is_the_same_whatever_the_count(corridor):
    few, many = (matched_random(corridor, 4, count, "bursty", 1) for count in (3, 40))
    assert many[many["draw"] < 3].equals(few)
    assert many["draw"].unique().tolist() == list(range(40))


def test_draws_depend_on_block_and_budget_alone(corridor):
    def first(budget, regime, seed):
        return tuple(matched_random(corridor, budget, 1, regime, seed)["start_s"])

    keys = [(4, "bursty", 1), (4, "bursty", 2), (4, "steady", 1), (3, "bursty", 1)]
    assert len({first(*key) for key in keys}) == 4
    assert first(*keys[0]) == first(*keys[0])


def test_all_draws_are_feasible_and_differ(corridor):
    rows = matched_random(corridor, 4, 200, "bursty", 1)
    draws = [tuple(g["start_s"]) for _, g in rows.groupby("draw")]
    assert len(set(draws)) == 200
    assert all(corridor.feasible(np.array(draw)) is None for draw in draws)
    assert set(rows["reason"]) == {"control"}
    assert rows["score"].isna().all()


def test_probe_is_not_a_draw(corridor):
    rows = probe(corridor, "bursty", 1)
    assert corridor.feasible(rows["start_s"].to_numpy()) is None
    draws = matched_random(corridor, len(rows), 500, "bursty", 1)
    assert tuple(rows["start_s"]) not in {tuple(g["start_s"]) for _, g in draws.groupby("draw")}
    assert probe(corridor, "bursty", 1).equals(rows)
    assert not probe(corridor, "bursty", 2).equals(rows)


def test_an_infeasible_budget_is_refused(corridor):
    with pytest.raises(ValueError, match="7 merges"):
        matched_random(corridor, 7, 1, "bursty", 1)


def test_schedules_are_pinned(corridor):
    """Draws are evidence: a change of stream or sampler must be seen, and announced."""
    rows = matched_random(corridor, 4, 8, "bursty", 1)
    digest = hashlib.sha256(rows["step"].to_numpy("<i8").tobytes()).hexdigest()
    assert digest == "f81166bb5ba4409a1a2d2d22bafb5ab28e0c15f01f7737ec00bdb646702ba06c"
    assert probe(corridor, "bursty", 1)["step"].tolist() == [138, 271, 543, 685, 872]


def test_rows_and_facts_fit_the_table(corridor, tmp_path):
    rows = matched_random(corridor, 5, 3, "bursty", 1)
    facts = control_facts("matched_random", corridor, 5, "bursty", 1)
    SCHEDULE.write(tmp_path / "part.parquet", rows, facts)
    read, read_facts = SCHEDULE.read_with_metadata(tmp_path / "part.parquet")
    assert len(read) == 15
    assert read_facts == facts == json.loads(json.dumps(facts))
    assert (facts["budget"], facts["freedom"], facts["deployable"]) == (5, 2.5, False)
    assert len(facts["warnings"]) == 1  # 20 s of slack for five merges of 8 s


# --- matched_spacing: the corridor takes 2 + 3 + 3 + 4 steps and four merges of 2 s in 22 s

WIDE = Corridor(h_min=2, h_max=5, step_s=1.0, merge_s=2.0, horizon_s=22.0)
GAPS = np.array([3, 2, 4, 3])


def orders_of(rows):
    return [tuple(row) for row in gaps_of(rows, 4).tolist()]


def test_matched_spacing_is_uniform_over_the_distinct_orders():
    distinct = sorted(set(itertools.permutations(GAPS.tolist())))
    assert arrangements(GAPS) == len(distinct) == 12
    seen = orders_of(matched_spacing(WIDE, GAPS, 1_200, "steady", 3))
    counts = [seen.count(order) for order in distinct]
    assert sum(counts) == len(seen)
    assert stats.chisquare(counts).pvalue > 0.001


def test_every_order_of_the_gaps_is_feasible(corridor):
    rows = matched_random(corridor, 4, 5, "bursty", 1)
    for gaps in gaps_of(rows, 4):
        spaced = matched_spacing(corridor, gaps, 20, "bursty", 1)
        for _, draw in spaced.groupby("draw"):
            assert corridor.feasible(draw["start_s"].to_numpy()) is None
        assert set(spaced["reason"]) == {"control"}
        assert spaced["score"].isna().all()


def test_spacing_depends_on_block_gaps_and_index_alone():
    def drawn(gaps, count, *block):
        return orders_of(matched_spacing(WIDE, np.array(gaps), count, *block))

    few = drawn(GAPS, 10, "steady", 3)
    assert drawn(GAPS, 40, "steady", 3)[:10] == few
    assert drawn([2, 3, 3, 4], 10, "steady", 3) == few
    others = [drawn(GAPS, 10, "bursty", 3), drawn(GAPS, 10, "steady", 4)]
    assert few not in others
    assert drawn([2, 3, 4, 4], 10, "steady", 3) != few


def test_a_fixed_period_is_its_own_spacing(corridor):
    gaps = np.array([256, 256, 256])
    rows = matched_spacing(corridor, gaps, 5, "bursty", 1)
    assert (gaps_of(rows, 3) == 256).all()
    facts = spacing_facts(corridor, gaps, "fixed_h_256", "bursty", 1)
    assert (facts["arrangements"], facts["spacing_of"]) == (1, "fixed_h_256")
    assert any("fixed_h_256 have one order only" in warning for warning in facts["warnings"])
    assert facts == json.loads(json.dumps(facts))
    free = spacing_facts(corridor, np.array([200, 260, 240, 250]), "wa", "bursty", 1)
    assert (free["arrangements"], free["warnings"]) == (24, [])


def test_gaps_that_break_the_corridor_have_no_spacing():
    with pytest.raises(ValueError, match="matched_spacing: merge 2 of 4 has a gap of 6 steps"):
        matched_spacing(WIDE, np.array([3, 6, 4, 3]), 1, "steady", 3)


def test_an_empty_schedule_has_one_order():
    short = Corridor(h_min=2, h_max=5, step_s=1.0, merge_s=2.0, horizon_s=4.0)
    empty = np.empty(0, dtype=np.int64)
    assert matched_spacing(short, empty, 3, "steady", 1).empty
    assert arrangements(empty) == 1


def test_spacings_are_pinned():
    rows = matched_spacing(WIDE, GAPS, 3, "bursty", 1)
    assert orders_of(rows) == [(2, 4, 3, 3), (3, 4, 2, 3), (3, 2, 3, 4)]


def test_repeats_are_draws_of_one_schedule(tmp_path):
    rows = probe(SMALL, "bursty", 1)
    SCHEDULE.write(tmp_path / "part.parquet", repeated(rows, 3))
    found = SCHEDULE.read(tmp_path / "part.parquet")
    assert found["draw"].tolist() == [draw for draw in range(3) for _ in range(len(rows))]
    for draw in range(3):
        mine = found[found["draw"] == draw]
        assert mine["start_s"].tolist() == rows["start_s"].tolist()
    assert len(first_draw(found)) == len(rows)
    SCHEDULE.write(tmp_path / "once.parquet", rows)
    SCHEDULE.write(tmp_path / "same.parquet", repeated(rows, 1))
    once, same = ((tmp_path / f"{name}.parquet").read_bytes() for name in ("once", "same"))
    assert once == same  # a run without repeats repeats no measurement
