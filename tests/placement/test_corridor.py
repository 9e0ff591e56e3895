"""The feasible set: definitions, counts, budgets, and what is said about infeasible schedules."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safesync.placement import Corridor

corridors = st.builds(
    lambda h_min, width, merge, horizon, blocking: (
        h_min if blocking else max(h_min, merge),
        (h_min if blocking else max(h_min, merge)) + width,
        merge,
        horizon,
        blocking,
    ),
    st.integers(1, 12),
    st.integers(0, 12),
    st.integers(1, 6),
    st.integers(1, 60),
    st.booleans(),
)


def test_count_and_budgets_equal_the_enumeration(small):
    corridor, schedules = small
    assert [b.merges for b in corridor.budgets()] == list(schedules)
    for n in range(max(schedules) + 3):
        assert corridor.count(n) == len(schedules.get(n, []))


def test_every_enumerated_schedule_is_feasible_both_ways(small):
    corridor, schedules = small
    for rows in schedules.values():
        for gaps in rows:
            assert corridor.feasible(gaps) is None
            assert corridor.feasible(corridor.starts(gaps)) is None


def test_feasible_accepts_no_schedule_outside_the_enumeration(small):
    corridor, schedules = small
    members = {tuple(gaps) for rows in schedules.values() for gaps in rows.tolist()}
    around = range(corridor.h_min - 1, corridor.h_max + 2)
    for n in range(4):
        for gaps in itertools.product(around, repeat=n):
            verdict = corridor.feasible(np.array(gaps, dtype=np.int64))
            assert (verdict is None) == (gaps in members), (gaps, verdict)


def test_count_equals_integer_dynamic_programming_at_full_size(paper):
    # Independent of inclusion-exclusion: sums of windows over Python integers.
    width, inner, n = 384, 4800 - 12 * 64, 12
    ways = [1] + [0] * inner
    for _ in range(n):
        running = [0, *itertools.accumulate(ways)]
        ways = [
            running[max(s - 127, 0)] - running[max(s - 128 - width, 0)] for s in range(inner + 1)
        ]
    assert paper.count(n) == sum(ways[inner - 575 :])


@pytest.mark.parametrize("blocking", [True, False])
def test_starts_follow_the_definition(blocking):
    corridor = Corridor(64, 512, 0.125, 8.0, 600.0, blocking)
    gaps = np.array([64, 100, 512])
    pause = 8.0 if blocking else 0.0
    np.testing.assert_array_equal(
        corridor.starts(gaps), [8.0, 164 * 0.125 + pause, 676 * 0.125 + 2 * pause]
    )
    np.testing.assert_array_equal(corridor.steps(gaps), [64, 164, 676])
    np.testing.assert_array_equal(corridor.gaps_from_starts(corridor.starts(gaps)), gaps)
    many = np.stack([gaps, gaps[::-1]])
    assert corridor.starts(many).shape == (2, 3)
    np.testing.assert_array_equal(corridor.gaps_from_starts(corridor.starts(many)), many)
    np.testing.assert_array_equal(corridor.start_steps(gaps) * 0.125, corridor.starts(gaps))


@pytest.mark.parametrize("step_s", [0.1, 0.0625, 0.3, 1 / 3])
def test_grids_that_floats_cannot_hold_exactly(step_s):
    corridor = Corridor(10, 30, step_s, 7 * step_s, 1000 * step_s)
    gaps = corridor.sample(30, 50, np.random.default_rng(0))
    assert (corridor.grid.merge, corridor.grid.horizon) == (7, 1000)
    for row in gaps:
        np.testing.assert_array_equal(corridor.gaps_from_starts(corridor.starts(row)), row)
        assert corridor.feasible(corridor.starts(row)) is None


@pytest.mark.parametrize("blocking", [True, False])
def test_terminal_rule_from_both_sides(make_corridor, blocking):
    # h_max 9, merge 2; the last merge ends at 6 + 2 = 8. Blocking: the next ends at 8 + 9 + 2 = 19
    # at the latest; overlapped, its gap runs from 6: it ends at 6 + 9 + 2 = 17.
    ends = 19 if blocking else 17
    assert make_corridor(3, 9, 2, ends - 1, blocking).feasible([6]) is None
    reason = make_corridor(3, 9, 2, ends, blocking).feasible([6])
    assert reason is not None and f"would end at {ends * 0.125:g} s" in reason
    assert "merge 1 of 1" in reason


@pytest.mark.parametrize("blocking", [True, False])
def test_the_last_merge_may_end_at_the_horizon_and_no_later(make_corridor, blocking):
    assert make_corridor(3, 9, 2, 8, blocking).feasible([6]) is None
    reason = make_corridor(3, 9, 2, 7, blocking).feasible([6])
    assert reason == "merge 1 of 1 would end at 1 s, after the horizon of 0.875 s."


def test_the_empty_schedule_is_feasible_only_when_no_merge_is_due(make_corridor):
    assert make_corridor(3, 9, 2, 10).feasible([]) is None
    assert make_corridor(3, 9, 2, 10).count(0) == 1
    reason = make_corridor(3, 9, 2, 11).feasible([])
    assert "empty schedule" in reason and "1.375 s" in reason
    assert make_corridor(3, 9, 2, 11).count(0) == 0


def test_reasons_name_the_merge_and_the_bound(paper):
    gaps = np.full(15, 256)
    assert paper.feasible(gaps) is None
    assert paper.feasible(np.r_[256, 127, gaps[2:]]) == (
        "merge 2 of 15 has a gap of 127 steps, below h_min = 128."
    )
    assert paper.feasible(np.r_[256, 256, 513, gaps[3:]]) == (
        "merge 3 of 15 has a gap of 513 steps, above h_max = 512."
    )
    assert "merge 16 of 16 would end at 640 s, after the horizon" in paper.feasible([256] * 16)
    assert "merge 2 of 2 starts at 90.1 s" in paper.feasible([32.0, 90.1])
    assert "merge 7 of 7 one more merge is due" in paper.feasible([512] * 7)
    assert "merge 1 of 1 has a gap of -8 steps" in paper.feasible([-1.0])
    assert "merge 2 of 2 has a gap of" in paper.feasible([64.0, 32.0])
    assert "merge 1 of 1 starts at nan s" in paper.feasible([float("nan")])


def test_integers_are_gaps_and_floats_are_starts(paper):
    gaps = paper.optimum(12, np.zeros(paper.n_starts))
    assert paper.feasible(gaps.tolist()) is None
    assert paper.feasible(paper.starts(gaps).tolist()) is None
    assert paper.feasible(gaps.astype(float)) is not None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"merge_s": 8.03},
            r"merge_s = 8.03 s .* 8.03 / 0.125 = 64.24; .* 64 steps \(8 s\) and 65",
        ),
        ({"horizon_s": 600.05}, r"horizon_s = 600.05 s is not a whole number of steps"),
        ({"h_min": 0}, r"h_min = 0 .* 1 <= h_min <= h_max"),
        ({"h_min": 513}, r"h_min = 513 and h_max = 512"),
        ({"h_max": 512.5}, r"h_max = 512.5 must be a whole number"),
        ({"step_s": 0.0}, r"step_s = 0.0 must be a positive"),
        ({"merge_s": -8.0}, r"merge_s = -8.0 must be a positive"),
        ({"horizon_s": float("nan")}, r"horizon_s = nan must be a positive"),
        ({"blocking": False, "h_min": 63}, r"h_min = 63 steps is shorter than a merge of 64"),
    ],
)
def test_corridors_that_cannot_be_are_refused(change, sentence):
    good = {"h_min": 128, "h_max": 512, "step_s": 0.125, "merge_s": 8.0, "horizon_s": 600.0}
    with pytest.raises(ValueError, match=sentence):
        Corridor(**(good | change))


def test_infeasible_budgets_and_wrong_inputs_are_refused(paper):
    rng = np.random.default_rng(0)
    cost = np.zeros(paper.n_starts)
    for call in (
        lambda: paper.sample(7, 1, rng),
        lambda: paper.sample(26, 1, rng),
        lambda: paper.optimum(26, cost),
        lambda: paper.moments(7, cost),
    ):
        with pytest.raises(ValueError, match=r"no feasible schedule has .* takes 8 to 25"):
            call()
    with pytest.raises(ValueError, match="negative: -1"):
        paper.count(-1)
    with pytest.raises(ValueError, match=r"expected \(4737,\)"):
        paper.optimum(12, cost[:-1])
    with pytest.raises(ValueError, match="finite"):
        paper.optimum(12, np.where(np.arange(paper.n_starts) == 7, np.nan, cost))
    with pytest.raises(ValueError, match=r"shape \(draws, 12\)"):
        paper.transform(12, np.zeros((4, 11)))
    with pytest.raises(ValueError, match="must be integers"):
        paper.starts([128.0])
    with pytest.raises(ValueError, match="one dimension"):
        paper.feasible(np.zeros((2, 3), dtype=int))


def test_budgets_say_what_freedom_is_left(paper):
    rows = {b.merges: b for b in paper.budgets()}
    # N = 8, the published budget: 8 gaps of h_max end at 576 s, so the terminal rule lets the
    # 4096 steps shrink by 383 only.
    assert (rows[8].slack_s, rows[8].edge, rows[8].pinned) == (383 / 8, "h_max", True)
    assert (rows[25].slack_s, rows[25].edge, rows[25].pinned) == (0.0, "h_min", True)
    assert rows[25].count == 1
    assert rows[15].slack_s == 4800 / 8 - 15 * (16 + 8)
    assert rows[15].freedom == rows[15].slack_s / 8
    assert not rows[15].pinned
    assert rows[15].null_sd is None
    assert rows[15].count == paper.count(15)
    # Pinned is less than one window of 8 s for each merge.
    for row in rows.values():
        assert row.pinned == (row.slack_s < 8 * row.merges)


def test_slack_is_the_distance_to_the_nearer_end(small):
    corridor, schedules = small
    for row in corridor.budgets():
        sums = schedules[row.merges].sum(axis=1)
        above = sums.max() - row.merges * corridor.h_min
        below = row.merges * corridor.h_max - sums.min()
        assert row.slack_s == min(above, below) * corridor.step_s


def test_budgets_with_a_cost_and_among(paper):
    cost = np.random.default_rng(3).integers(0, 40, paper.n_starts)
    rows = paper.budgets(cost, among=[12, 99, 14])
    assert [b.merges for b in rows] == [12, 14]
    assert rows[0].null_sd == pytest.approx(paper.null(12, cost).sd, rel=1e-9)


def test_fixed_period_in_disguise(paper):
    assert "8 of 8 gaps" in paper.fixed_period(np.full(8, 512))
    assert "(3 at h_min = 128, 2 at h_max = 512)" in paper.fixed_period(
        [128, 128, 128, 512, 512, 300, 301, 302]
    )
    assert paper.fixed_period([128, 128, 512, 512, 300, 301, 302, 303]) is None
    assert paper.fixed_period(np.full(15, 256)) is None
    assert paper.fixed_period([]) is None


@settings(deadline=None, max_examples=60)
@given(corridors)
def test_any_corridor_agrees_with_the_enumeration(make_corridor, enumeration, shape):
    corridor = make_corridor(*shape)
    least_gap = corridor.h_min + corridor.grid.pause
    if shape[3] / least_gap * np.log(corridor.grid.width + 1) > 8:  # too many to enumerate
        return
    schedules = enumeration(corridor)
    assert {b.merges: b.count for b in corridor.budgets()} == {
        n: len(rows) for n, rows in schedules.items()
    }


def test_a_day_has_exact_counts_and_budgets(day):
    assert (day.grid.budgets()[0], day.grid.budgets()[-1]) == (1200, 3600)
    assert day.count(3600) == 1
    # 3599 gaps with up to 192 slack steps to share, none of which can exceed h_max.
    assert day.count(3599) == math.comb(3599 + 192, 192)
    assert len(day.budgets()) == 2401


def test_importing_the_room_compiles_nothing_and_loads_no_other_room():
    code = (
        "import sys, safesync.placement as p; print(sorted(m for m in sys.modules if "
        "m in ('numba', 'scipy.signal', 'scipy.optimize') or "
        "m.startswith('safesync.') and not m.startswith('safesync.placement')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
