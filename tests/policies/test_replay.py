"""The engine against schedules computed by hand, and against the feasible set."""

import json
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from safesync.placement import Corridor
from safesync.policies import Decision, Policy, load_policy
from safesync.policies.replay import decide_schedule
from safesync.tables.schedule import SCHEDULE


class Planted(Policy):
    """Merges where ``answer`` says so, and keeps what it was shown."""

    name: ClassVar[str] = "planted"

    def __init__(self, answer=lambda seen: False, score=None):
        super().__init__()
        self.answer, self.score, self.seen = answer, score, []

    def begin(self, block):
        self.block = block

    def decide(self, observation):
        self.seen.append(observation)
        return Decision(self.answer(observation), self.score)


class Oracle(Planted):
    deployable: ClassVar[bool] = False


def starts(rows):
    return rows["start_s"].tolist()


@pytest.mark.parametrize(
    ("h", "expected"),
    [(128, [8, 24, 40, 56, 72, 88]), (256, [16, 40, 64, 88]), (512, [32, 72])],
)
def test_fixed_h_by_hand(corridor, flat, h, expected):
    fixed_h = load_policy("fixed_h")
    rows, facts = decide_schedule(fixed_h(fixed_h.Parameters(h=h)), corridor, flat())
    assert starts(rows) == expected
    assert rows["step"].tolist() == [h * (k + 1) for k in range(len(expected))]
    assert rows["merge"].tolist() == list(range(len(expected)))
    assert set(rows["reason"]) == {"policy"}
    assert rows["score"].isna().all()
    assert (rows["draw"] == 0).all()
    assert facts["budget"] == len(expected)
    assert facts["parameters"] == {"h": h}
    assert facts["forced_share"] == 0


@pytest.mark.parametrize("h", [127, 513])
def test_fixed_h_outside_the_corridor_is_refused(corridor, flat, h):
    fixed_h = load_policy("fixed_h")
    with pytest.raises(ValueError, match=rf"h = {h} lies outside the corridor 128\.\.512"):
        decide_schedule(fixed_h(fixed_h.Parameters(h=h)), corridor, flat())


def test_a_policy_that_declines_is_forced_at_h_max(corridor, flat):
    rows, facts = decide_schedule(Planted(score=-0.5), corridor, flat())
    assert starts(rows) == [32, 72]
    assert rows["reason"].tolist() == ["forced", "forced"]
    assert rows["score"].tolist() == [-0.5, -0.5]
    assert facts["forced_share"] == 1
    assert any("2 of 2 merges were forced at h_max = 512" in w for w in facts["warnings"])


def test_accepting_at_h_max_is_the_policys_own_merge(corridor, flat):
    rows, facts = decide_schedule(Planted(lambda seen: seen.gap == 512), corridor, flat())
    assert rows["reason"].tolist() == ["policy", "policy"]
    assert facts["forced_share"] == 0
    assert any("fixed period in disguise" in w for w in facts["warnings"])


@pytest.mark.parametrize(("horizon_s", "expected"), [(39.9375, []), (40.0, [32.0])])
def test_at_the_end_a_forced_merge_is_made_when_it_fits(flat, horizon_s, expected):
    corridor = Corridor(128, 512, 0.0625, 8.0, horizon_s)
    assert starts(decide_schedule(Planted(), corridor, flat())[0]) == expected


def test_declining_after_the_last_merge_that_could_be_forced(corridor, flat):
    # one merge at 50 s; the next would be forced at 58 + 32 = 90 s and end at 98 s: it is made.
    # At 52.0625 s it would end at 100.0625 s: it is not.
    early = Planted(lambda seen: seen.now_s in (20.0, 50.0))
    assert starts(decide_schedule(early, corridor, flat())[0]) == [20, 50, 90]
    late = Planted(lambda seen: seen.now_s in (20.0, 52.0625))
    assert starts(decide_schedule(late, corridor, flat())[0]) == [20, 52.0625]


def test_decide_is_called_at_every_boundary_from_h_min_to_h_max(corridor, flat):
    policy = Planted()
    decide_schedule(policy, corridor, flat())
    first = [seen for seen in policy.seen if seen.merges == 0]
    assert [seen.gap for seen in first] == list(range(128, 513))
    assert [seen.now_s for seen in first] == [gap * 0.0625 for gap in range(128, 513)]
    second = [seen for seen in policy.seen if seen.merges == 1]
    assert second[0].now_s == 32 + 8 + 8
    assert (second[0].step, second[0].gap) == (512 + 128, 128)
    # the last boundary from which a merge still ends inside the horizon
    third = [seen for seen in policy.seen if seen.merges == 2]
    assert [seen.now_s for seen in third] == [88 + k * 0.0625 for k in range(65)]


def test_overlapped_merges_do_not_stop_the_steps(flat):
    corridor = Corridor(128, 512, 0.0625, 8.0, 100.0, blocking=False)
    policy = Planted(lambda seen: seen.gap == 200)
    rows, _ = decide_schedule(policy, corridor, flat())
    assert starts(rows) == [12.5 * k for k in range(1, 8)]
    assert policy.seen[-1].now_s <= 92


def test_nosync_needs_no_trace_and_no_corridor(corridor):
    rows, facts = decide_schedule(load_policy("nosync")(), corridor, None)
    assert list(rows.columns) == SCHEDULE.schema.names
    assert rows.empty
    assert facts["budget"] == 0
    assert facts["freedom"] is None
    assert facts["warnings"] == []


def test_other_policies_need_a_trace(corridor):
    with pytest.raises(ValueError, match="planted: needs the observable trace"):
        decide_schedule(Planted(), corridor, None)


def test_the_future_is_withheld_from_deployable_policies(corridor, flat):
    reference = pd.DataFrame({"merge": [0]})
    trace = flat()
    for policy, trusted in ((Planted(), False), (Oracle(), True)):
        decide_schedule(policy, corridor, trace, reference=reference)
        assert (policy.block.trace is trace) == trusted
        assert (policy.block.reference is reference) == trusted
        assert policy.block.islands == 2
        assert policy.block.corridor is corridor


def test_random_numbers_of_a_policy_belong_to_its_block(corridor, flat):
    def draw(regime, seed):
        policy = Planted()
        decide_schedule(policy, corridor, flat(), regime=regime, seed=seed)
        return policy.block.rng.random()

    assert draw("a", 1) == draw("a", 1)
    assert len({draw("a", 1), draw("a", 2), draw("b", 1)}) == 3


@pytest.mark.parametrize("score", [np.nan, np.inf])
def test_a_score_that_is_not_finite_is_an_error(corridor, flat, score):
    with pytest.raises(ValueError, match=r"planted: score (nan|inf) at step 128"):
        decide_schedule(Planted(score=score), corridor, flat())


def test_inert_signals_are_named_in_the_facts(corridor, flat, simulated):
    named = ["network", "serving", "checkpoint"]
    assert decide_schedule(Planted(), corridor, flat())[1]["inert_signals"] == named
    assert decide_schedule(Planted(), corridor, simulated(1))[1]["inert_signals"] == []


def test_pinned_budgets_warn_and_free_ones_do_not(corridor, flat):
    _, facts = decide_schedule(Planted(lambda seen: seen.gap == 130), corridor, flat())
    assert facts["budget"] == 6
    assert any(
        w.startswith("budget 6 (the corridor takes 2 to 6) is pinned") for w in facts["warnings"]
    )
    due = dict(enumerate([200, 260, 240, 250]))
    rows, facts = decide_schedule(
        Planted(lambda seen: seen.gap == due.get(seen.merges)), corridor, flat()
    )
    assert np.diff(rows["step"], prepend=0).tolist() == list(due.values())
    assert facts["warnings"] == []
    assert facts["freedom_s"] == 36.0  # 92 - 4 * 8 - 3 * 8 s beyond the tightest four merges
    assert facts["freedom"] == 4.5
    assert facts["budget_range"] == [2, 6]


def test_rows_and_facts_survive_the_file(corridor, simulated, tmp_path):
    rows, facts = decide_schedule(
        load_policy("wa_diloco")(), corridor, simulated(1), regime="bursty", seed=1
    )
    path = tmp_path / "part.parquet"
    SCHEDULE.write(path, rows, facts)
    read, read_facts = SCHEDULE.read_with_metadata(path)
    assert read_facts == facts == json.loads(json.dumps(facts, allow_nan=False))
    pd.testing.assert_frame_equal(read, rows, check_dtype=False)
    assert read["score"].gt(0.5).all()
    first = path.read_bytes()
    SCHEDULE.write(
        path,
        *decide_schedule(
            load_policy("wa_diloco")(), corridor, simulated(1), regime="bursty", seed=1
        ),
    )
    assert path.read_bytes() == first


@settings(max_examples=150, deadline=None)
@given(
    h_min=st.integers(1, 12),
    width=st.integers(0, 12),
    merge=st.integers(1, 6),
    horizon=st.integers(1, 120),
    blocking=st.booleans(),
    probability=st.sampled_from([0.0, 0.03, 0.2, 1.0]),
    seed=st.integers(0, 1_000),
)
def test_every_schedule_is_feasible(
    flat, h_min, width, merge, horizon, blocking, probability, seed
):
    assume(blocking or h_min >= merge)
    corridor = Corridor(h_min, h_min + width, 0.5, merge * 0.5, horizon * 0.5, blocking)
    rng = np.random.default_rng(seed)
    policy = Planted(lambda seen: rng.random() < probability)
    # some corridors force a merge after which no further one fits, or is due: none may break
    rows, facts = decide_schedule(policy, corridor, flat(steps=200))
    assert corridor.feasible(rows["start_s"].to_numpy()) is None
    assert corridor.feasible(np.diff(rows["step"].to_numpy(), prepend=0)) is None
    assert len(rows) in corridor.grid.budgets()
    assert facts["budget"] == len(rows)
