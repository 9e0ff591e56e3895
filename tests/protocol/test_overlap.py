"""The exact tier: its rows against enumeration, its tests, and planted verdicts."""

import itertools

import numpy as np
import pandas as pd
import pytest
from protocol.planted import RUN_FACTS, study
from protocol.planted_overlap import CORRIDOR, block, overlap_study

from safesync.placement import Corridor
from safesync.protocol.document import VerdictDocument
from safesync.protocol.gates import Gate, Scope
from safesync.protocol.overlap import OverlapBlock, gap_orders, overlap_rows
from safesync.protocol.scores import exposed
from safesync.protocol.statistics import convolved_null_test
from safesync.protocol.verdict import judge
from safesync.tables.overlap import OVERLAP
from safesync.tables.scores import SCORES

SMALL = Corridor(h_min=2, h_max=5, step_s=1.0, merge_s=1.0, horizon_s=14.0)
IDENTITY = {"run": "r", "regime": "bursty", "kind": "bursty", "seed": 3, "role": "judge"}
GIVEN = [
    (Scope(), Gate(name, True, 0.0, 0.0, "Passed elsewhere."))
    for name in ("causality", "training parity", "effect-size transfer", "matched spacing")
]


def capture(seed: int, count: int = 25) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    arrival_s = rng.uniform(0, 14, count)
    return pd.DataFrame({"arrival_s": arrival_s, "done_s": arrival_s + rng.uniform(0, 2, count)})


def enumerated(merges: int) -> list[np.ndarray]:
    every = itertools.product(range(2, 6), repeat=merges)
    return [np.array(gaps) for gaps in every if SMALL.feasible(np.array(gaps)) is None]


def costs_of(gaps: list[np.ndarray], requests: pd.DataFrame) -> np.ndarray:
    starts_s = [SMALL.starts(g) for g in gaps]
    return np.array([exposed(requests, starts, starts + 1.0).sum() for starts in starts_s])


def judged(overlap, claims=("oracle",), scores=None, **changes):
    facts = RUN_FACTS | {"baselines": ["fixed_h_12"], "overlap": overlap} | changes
    return judge(SCORES.empty() if scores is None else scores, {}, list(claims), **facts)


@pytest.fixture(scope="module")
def bursty():
    return overlap_study()


@pytest.mark.parametrize("merges", [3, 4])
def test_rows_agree_with_enumeration(merges):
    requests, every = capture(1), enumerated(merges)
    costs = costs_of(every, requests)
    assert len(np.unique(costs)) > 5
    schedules = {str(place): SMALL.starts(gaps) for place, gaps in enumerate(every)}
    rows = overlap_rows(schedules, requests, SMALL, identity=IDENTITY)
    assert rows["overlap"].tolist() == costs.tolist()
    assert rows["p_at_most"].tolist() == pytest.approx([(costs <= c).mean() for c in costs])
    assert rows["null_mean"].tolist() == pytest.approx([costs.mean()] * len(costs))
    assert rows["null_sd"].tolist() == pytest.approx([costs.std()] * len(costs))
    assert set(rows["optimum"]) == {costs.min()}
    assert rows["regret"].tolist() == (costs - costs.min()).tolist()


def test_spacing_rows_agree_with_all_permutations():
    requests = capture(2)
    gaps = np.array([2, 4, 2])
    (row,) = overlap_rows(
        {"p": SMALL.starts(gaps)}, requests, SMALL, identity=IDENTITY
    ).itertuples()
    every = costs_of([np.array(order) for order in itertools.permutations(gaps)], requests)
    values, counts = np.unique(every, return_counts=True)
    assert row.spacing_values.tolist() == values.tolist()
    assert row.spacing_probabilities.tolist() == pytest.approx((counts / 6).tolist())
    assert (row.spacing_orders, row.spacing_exact) == (3, True)


@pytest.mark.parametrize("gaps", [[], [7], [3, 3, 3], [1, 2, 3, 4], [5, 5, 1, 2, 5]])
def test_gap_orders_are_all_distinct_permutations(gaps):
    orders, exact = gap_orders(np.array(gaps, dtype=int), 1000, np.random.default_rng(0))
    assert exact
    assert sorted(map(tuple, orders.tolist())) == sorted(set(itertools.permutations(gaps)))


def test_too_many_orders_are_sampled_with_the_own_one_first():
    gaps = np.arange(9)
    orders, exact = gap_orders(gaps, 200, np.random.default_rng(0))
    again, _ = gap_orders(gaps, 200, np.random.default_rng(0))
    assert (not exact, orders.shape) == (True, (200, 9))
    assert orders[0].tolist() == gaps.tolist()
    assert (np.sort(orders, axis=1) == gaps).all()
    assert len(np.unique(orders, axis=0)) > 190
    assert (orders == again).all()
    for most, full in ((24, True), (23, False)):
        assert gap_orders(np.arange(4), most, np.random.default_rng(0))[1] is full


@pytest.mark.parametrize("side", ["less", "greater"])
def test_convolved_test_agrees_with_enumeration_over_blocks(side):
    every = enumerated(3)
    blocks, own = [], []
    for seed in range(3):
        requests = capture(seed, 10)
        costs = costs_of(every, requests)
        row = overlap_rows(
            {"p": SMALL.starts(every[7 * seed + 1])}, requests, SMALL, identity=IDENTITY
        ).iloc[0]
        blocks.append((costs, OverlapBlock(row)))
        own.append(costs[7 * seed + 1])
    sums = np.add.outer(np.add.outer(blocks[0][0], blocks[1][0]), blocks[2][0]).ravel()
    test = convolved_null_test(own, [b.null for _, b in blocks], alternative=side)
    tail = sums <= sum(own) if side == "less" else sums >= sum(own)
    end = sums.min() if side == "less" else sums.max()
    assert 0.01 < tail.mean() < 0.99
    assert test.p == pytest.approx(tail.mean())
    assert test.smallest == pytest.approx((sums == end).mean())
    assert test.statistic == pytest.approx(sum(own) - sums.mean())


def test_a_convolved_null_needs_a_block():
    with pytest.raises(ValueError, match="at least one block"):
        convolved_null_test([], [])


def test_oracle_is_earned_when_the_other_gates_passed(bursty):
    (result,) = judged(bursty, given_gates=GIVEN)["verdicts"]
    assert (result["tier"], result["verdict"]) == ("overlap", "EARNED")
    assert "fewer overlapped requests" in result["sentence"]
    assert "violations" not in result["sentence"]
    assert result["claim"]["p_claim"] == result["claim"]["sign_flip"]["p"] == 2**-6
    assert result["claim"]["randomization"]["p"] < 1e-6
    assert result["spacing"]["test"]["p_holm"] <= 0.05
    rows = bursty[bursty["policy"] == "oracle"]
    share = (rows["null_mean"] - rows["overlap"]) / rows["requests"]
    assert result["gain"]["points"] == pytest.approx(100 * share.mean())
    assert all(part["regret"] == 0 for part in result["blocks"])


def test_gates_without_an_object_are_not_open(bursty):
    (result,) = judged(bursty)["verdicts"]
    assert (result["verdict"], result["would_be"]) == ("PROVISIONAL", "EARNED")
    assert result["open_gates"] == ["causality", "training parity"]
    assert [gate["name"] for gate in result["gates"] if not gate["applies"]] == [
        "measurement valid",
        "fingerprint",
        "effect-size transfer",
        "no-sync load match",
    ]
    assert not any(gate["passed"] for gate in result["gates"] if not gate["applies"])


def test_a_peeking_policy_is_refused(bursty):
    peeking = (Scope(policy="oracle"), Gate("causality", False, 3, 0, "3 decisions changed."))
    (result,) = judged(bursty, given_gates=[peeking])["verdicts"]
    assert result["verdict"] == "REFUSED"


def test_seeking_bursts_is_harmful(bursty):
    (result,) = judged(bursty, ["seeker"])["verdicts"]
    assert result["verdict"] == "HARMFUL"
    assert "more overlapped requests" in result["sentence"]


@pytest.mark.parametrize("first", [0, 100, 200])
def test_a_load_blind_schedule_is_not_earned(first):
    document = judged(overlap_study(first=first), ["blind"], given_gates=GIVEN)
    assert document["verdicts"][0]["would_be"] in ("TIED", "INCONCLUSIVE")


def test_an_even_period_is_a_spacing_gain_at_most():
    (result,) = judged(overlap_study(locked=True), ["even"], given_gates=GIVEN)["verdicts"]
    assert result["claim"]["p_holm"] <= 0.05
    assert result["gain"]["points"] > 1
    assert result["verdict"] == "INCONCLUSIVE"
    assert result["sentence"].startswith("A spacing gain, not awareness")
    assert result["settle"]["blocks"] is None
    assert result["settle"]["sentence"] == (
        "No design of up to 200 blocks settles it with probability 0.8 if the gain over its own "
        "gaps in other orders is +0.00 points and scatters by 0.00: what it gains is then its "
        "rhythm's, and any schedule of such gaps has it."
    )
    assert result["spacing"]["test"]["p_claim"] == 1
    assert result["spacing"]["points"] == 0


def test_a_few_blocks_cannot_tell(bursty):
    few = bursty[bursty["seed"] < 4]
    (result,) = judged(few, given_gates=GIVEN)["verdicts"]
    assert result["verdict"] == "INCONCLUSIVE"
    assert result["sentence"].startswith("4 blocks, exact null: smallest attainable p = 0.062")
    settle = result["settle"]
    assert (settle["blocks"], settle["more_blocks"], settle["draws"]) == (5, 1, None)
    assert (settle["replays"], settle["wall_s"]) == (1, 150)
    assert settle["likely"] == "EARNED"
    assert ": 1 more capture, 2 min one after another." in settle["sentence"]


def test_a_budget_without_placements_has_nothing_to_test(bursty):
    own = bursty[bursty["policy"] == "blind"]
    pinned = own.assign(
        null_mean=own["overlap"].astype(float),
        null_values=[[overlap] for overlap in own["overlap"]],
        null_probabilities=[[1.0]] * len(own),
    )
    (result,) = judged(pinned, ["blind"], given_gates=GIVEN)["verdicts"]
    assert (result["verdict"], result["settle"]) == ("TIED", None)
    assert result["sentence"].endswith(
        "In 6 of 6 blocks every placement comes out as the policy does, so nothing can be told "
        "there."
    )
    (result,) = judged(pinned.head(1), ["blind"], given_gates=GIVEN)["verdicts"]
    assert (result["verdict"], result["settle"]) == ("INCONCLUSIVE", None)
    assert "all placements of this budget meet as many requests" in result["sentence"]


def test_a_null_whose_best_is_near_its_mean_leaves_too_little_to_gain(bursty):
    own = bursty[bursty["policy"] == "blind"].head(1)
    near = own.assign(null_mean=own["optimum"] + 0.009 * own["requests"])
    (result,) = judged(near, ["blind"], given_gates=GIVEN)["verdicts"]
    assert result["sentence"].endswith(
        " No policy could have gained 1 point: the best placement there is gains 0.90 points over "
        "chance."
    )


def test_coarse_nulls_need_more_blocks(bursty):
    own = bursty[bursty["policy"] == "blind"]
    coarse = own.assign(
        null_values=[[overlap, overlap + 1] for overlap in own["overlap"]],
        null_probabilities=[[0.75, 0.25]] * len(own),
    )
    (result,) = judged(coarse, ["blind"])["verdicts"]
    assert result["claim"]["smallest"] == pytest.approx(0.75**6)
    assert result["settle"]["resolving_blocks"] == 11  # 0.75^11 is the first below 0.05
    assert result["settle"]["resolving_p"] == pytest.approx(0.75**11)


def test_holm_runs_over_the_claims_of_the_tier(bursty):
    document = judged(bursty, ["oracle", "blind", "never_run"], given_gates=GIVEN)
    assert document["family"] == {"overlap": 3}
    oracle, _, missing = document["verdicts"]
    for claim in (oracle["claim"], oracle["spacing"]["test"]):
        assert claim["p_holm"] == pytest.approx(3 * claim["p_claim"])
    assert missing["sentence"] == "No judged schedule of this policy exists."


def test_every_other_policy_is_described_and_decomposed(bursty):
    document = judged(bursty)
    assert [r["policy"] for r in document["described"]] == ["blind", "even", "fixed_h_12", "seeker"]
    (part,) = document["verdicts"][0]["decomposition"]
    rates = (bursty["overlap"] / bursty["requests"]).groupby(bursty["policy"]).mean()
    assert part["total_points"] == pytest.approx(100 * (rates["oracle"] - rates["fixed_h_12"]))
    assert part["placement_points"] == pytest.approx(-document["verdicts"][0]["gain"]["points"])


def test_tiers_are_judged_apart_and_the_stronger_answers(bursty):
    document = judged(bursty, ["oracle"], study(-0.03, policy="oracle"), given_gates=GIVEN)
    assert [r["tier"] for r in document["verdicts"]] == ["vllm", "overlap"]
    assert document["family"] == {"vllm": 1, "overlap": 1}
    assert "on the vllm tier" in document["answer"]
    with pytest.raises(ValueError, match="unknown tier"):
        judged(bursty, ["oracle"], study(-0.03).assign(tier="overlap"))


def test_only_judge_rows_are_evidence(bursty):
    tuned = bursty.assign(role="tune", seed=bursty["seed"] + 50, overlap=0)
    both = pd.concat([bursty, tuned], ignore_index=True)
    assert judged(both)["verdicts"] == judged(bursty)["verdicts"]


def test_the_table_holds_all_that_the_judge_needs(bursty, tmp_path):
    OVERLAP.write(tmp_path / "overlap.parquet", bursty)
    read = OVERLAP.read(tmp_path / "overlap.parquet")
    document = judged(read, given_gates=GIVEN)
    assert document == judged(bursty, given_gates=GIVEN)
    assert VerdictDocument.model_validate(document).model_dump(mode="json") == document
    assert document["run"] == "planted"
    assert document["seeds"] == {"judge": [0, 1, 2, 3, 4, 5]}
    row = read[read["policy"] == "oracle"].iloc[0]
    assert (row["method"], row["inert_signals"]) == ("wa_offline", "network, checkpoint")


def test_bad_input_is_named(bursty):
    with pytest.raises(ValueError, match=r"late, bursty, seed 0: .* leaves the corridor.*h_min"):
        block(0, late=np.array([3.0]))
    with pytest.raises(ValueError, match=r"identity lacks.*'role'"):
        overlap_rows(
            {}, capture(0), SMALL, identity={"run": "r", "regime": "b", "kind": "b", "seed": 1}
        )
    with pytest.raises(ValueError, match="holds no request"):
        overlap_rows({}, capture(0).head(0), SMALL, identity=IDENTITY)
    with pytest.raises(ValueError, match="twice, the first: oracle, bursty, seed 0"):
        judged(pd.concat([bursty, bursty.head(1)]))


def test_corridor_of_the_planted_study_leaves_freedom():
    (budget,) = CORRIDOR.budgets(among=[8])
    assert not budget.pinned
