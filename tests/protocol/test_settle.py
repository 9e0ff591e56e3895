"""What would settle a case: designs for noise that is planted, by hand, and what they then do."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from protocol.planted import RUN_FACTS, row, study

from safesync.protocol.gates import Gate, Scope
from safesync.protocol.power import Awareness, Chances, Design, Noise, chances, smallest_design
from safesync.protocol.verdict import judge

RULES = {"alpha": 0.05, "family": 1, "min_gain": 0.01, "min_blocks": 5}
PASSED = [
    (Scope(), Gate(name, True, None, None, "Passed."))
    for name in ("effect-size transfer", "causality", "training parity")
]


def planted(differences, draws, *extra, **changes):
    """Return score rows: per block the draws ``draws`` about 0.2, and a policy off their mean."""
    rows = list(extra)
    for seed, difference in enumerate(differences):
        rates = [0.2 + away for away in draws]
        rows.append(row("nosync", seed, 0.0, budget=0))
        rows.append(row("wa", seed, float(np.mean(rates)) + difference))
        rows += [row("matched_random", seed, rate, draw=draw) for draw, rate in enumerate(rates)]
    return pd.DataFrame(rows).assign(**changes)


def result(scores, **rules):
    return judge(scores, rules, ["wa"], given_gates=PASSED, **RUN_FACTS)["verdicts"][0]


def test_gain_and_noise_that_were_seen_are_assumed():
    # d: mean -0.012, SD 0.02; draws: 0.01 * sqrt(2) about their mean, whatever the block
    found = result(planted([-0.032, 0.008] * 3 + [-0.012], [-0.01, 0.01]))
    assert found["verdict"] == "INCONCLUSIVE"
    settle = found["settle"]
    assumed = settle["assumed"]
    assert assumed["gain_points"] == pytest.approx(1.2)
    assert assumed["draw_sd_points"] == pytest.approx(math.sqrt(2))
    assert assumed["difference_sd_points"] == pytest.approx(2.0)
    assert assumed["policy_sd_points"] == pytest.approx(math.sqrt(4 - 1))
    assert (settle["resolving_blocks"], settle["resolving_p"]) == (5, 1 / 32)


def test_a_clear_gain_on_too_few_blocks():
    found = result(planted([-0.051, -0.049] * 2, [-0.001, 0.0, 0.001]))
    assert found["verdict"] == "INCONCLUSIVE"
    assert "smallest attainable p = 0.062, INCONCLUSIVE; 5 blocks would" in found["sentence"]
    settle = found["settle"]
    assert (settle["blocks"], settle["more_blocks"], settle["draws"]) == (5, 1, 3)
    assert (settle["replays"], settle["wall_s"]) == (5, 5 * 150)
    assert settle["smallest_p"] == 1 / 32
    assert settle["likely"] == "EARNED"
    assert settle["probability"] == pytest.approx(1.0)
    scatter = 100 * np.std([-0.051, -0.049] * 2, ddof=1)
    assert settle["sentence"] == (
        "5 blocks of 3 draws (there are 4 blocks of 3 draws) settle it with probability 1.00, most "
        "likely as EARNED, if the gain is +5.00 points and the blocks' differences scatter by "
        f"{scatter:.2f}: 5 more replays, 12 min one after another."
    )


@pytest.mark.parametrize(
    ("difference", "draws", "blocks"),
    [
        (-0.05, 3, 5),  # better than all its draws: 2^-5 is below 0.05
        (0.05, 3, 6),  # the sign flip has two patterns as extreme from now on: 2 * 2^-6
        (0.0, 3, 6),  # no difference is no gain
        (-0.0005, 1, 5),  # one draw, and better than it
        (0.0015, 2, 6),
    ],
)
def test_one_block_counts_as_it_came_out(difference, draws, blocks):
    away = [0.001 * draw for draw in range(draws)]
    settle = result(planted([difference], away))["settle"]
    assert settle["blocks"] == blocks
    told = "beside this one, which did not go for the policy" in settle["sentence"]
    assert told == (blocks == 6)
    # with further blocks at their best, that many are the fewest
    for number, enough in ((blocks - 1, False), (blocks, True)):
        best = [difference] + [-0.2] * (number - 1)
        smallest = result(planted(best, away), min_blocks=1)["claim"]["p_claim"]
        assert (smallest <= 0.05) == enough


def test_harm_and_ties_settle_a_case_as_well():
    harm = result(planted([0.051, 0.049] * 2, [-0.001, 0.0, 0.001]))["settle"]
    assert (harm["likely"], harm["blocks"]) == ("HARMFUL", 5)
    tie = result(planted([0.02, -0.02] * 3, [-0.001, 0.0, 0.001]))["settle"]
    assert tie["likely"] == "TIED"
    assert tie["blocks"] > 20  # 1 point is half an SD: t * 0.022 / sqrt(B) alone asks for 15


def test_more_draws_are_named_where_they_are_the_noise():
    # the policy never moves from 3 points below, the two draws lie 10 points apart
    found = result(planted([-0.03] * 6, [-0.05, 0.05]))
    assert found["verdict"] == "INCONCLUSIVE"
    settle = found["settle"]
    assert settle["assumed"]["policy_sd_points"] == 0
    assert settle["draws"] > 2
    design, expected = smallest_design(0.03, Noise(0.0, 0.05 * math.sqrt(2)), Design(6, 2), **RULES)
    assert (settle["blocks"], settle["draws"]) == (design.blocks, design.draws)
    assert settle["probability"] == pytest.approx(expected.settled)
    assert settle["replays"] == settle["blocks"] * (settle["draws"] + 2) - 6 * 4


def test_a_gain_at_the_margin_is_settled_by_no_design():
    found = result(planted([0.02, -0.04] * 3, [-0.01, 0.01]))
    assert found["verdict"] == "INCONCLUSIVE"
    settle = found["settle"]
    names = ("blocks", "more_blocks", "draws", "smallest_p", "probability", "replays", "wall_s")
    assert [settle[name] for name in names] == [None] * 7
    scatter = 100 * np.std([0.02, -0.04] * 3, ddof=1)
    assert settle["sentence"] == (
        "No design of up to 200 blocks settles it with probability 0.8 if the gain is +1.00 points "
        f"and the blocks' differences scatter by {scatter:.2f}: too near the margin of "
        "±1 point for that scatter."
    )
    assert (settle["resolving_blocks"], settle["assumed"]["gain_points"]) == (5, pytest.approx(1))


def computed(differences, spacing_gains):
    """Return the verdict of an emulated study with these gains over other orders of the gaps."""
    rows = planted(differences, [-0.001, 0.0, 0.001], tier="emulator", capture="emulator")
    return result(with_orders(rows, spacing_gains, 19))


def with_orders(rows, spacing_gains, orders):
    """Return score rows with ``orders`` rows of wa's own gaps per block, worse by these gains."""
    own = rows[rows["policy"] == "wa"].set_index("seed", drop=False)
    spacing = [
        own.loc[[seed]].assign(
            policy="matched_spacing",
            control_of="wa",
            draw=draw,
            violation_rate=own.loc[seed, "violation_rate"] + gain,
        )
        for seed, gain in enumerate(spacing_gains)
        for draw in range(orders)
    ]
    return pd.concat([rows, *spacing], ignore_index=True)


def measured(differences, spacing_gains, orders=2, **rules):
    """Return the verdict of a real study of 3 draws and ``orders`` other orders per block."""
    rows = planted(differences, [-0.001, 0.0, 0.001])
    return result(with_orders(rows, spacing_gains, orders), **rules)


def test_a_real_claim_with_both_gains_is_earned():
    found = measured([-0.051, -0.049] * 3, [0.041, 0.039] * 3)
    assert found["verdict"] == "EARNED"
    [gate] = [gate for gate in found["gates"] if gate["name"] == "matched spacing"]
    # 1/64 by sign flips; two orders a block allow 3^-6 by their ranks
    assert (gate["applies"], gate["passed"], gate["figure"]) == (True, True, 1 / 64)
    assert found["spacing"]["points"] == pytest.approx(4)
    assert found["spacing"]["test"]["randomization"]["smallest"] == pytest.approx(3**-6)
    assert [block["spacing_violation_rate"] for block in found["blocks"]] == pytest.approx(
        [0.149 + 0.041, 0.151 + 0.039] * 3
    )
    # without those replays it is the rhythm's or not: the gate has no object
    alone = result(planted([-0.051, -0.049] * 3, [-0.001, 0.0, 0.001]))
    [gate] = [gate for gate in alone["gates"] if gate["name"] == "matched spacing"]
    assert (alone["verdict"], gate["applies"]) == ("EARNED", False)


def test_an_even_rhythm_is_withheld_on_the_real_tier():
    found = measured([-0.051, -0.049] * 3, [0.01, -0.01] * 3)
    assert found["verdict"] == "INCONCLUSIVE"
    assert found["sentence"].startswith("A spacing gain, not awareness: a gain of +5.00 points")
    failed = [gate["name"] for gate in found["gates"] if gate["passed"] is False]
    assert failed == ["matched spacing"]
    assert found["settle"]["blocks"] is None
    assert found["settle"]["sentence"].endswith(
        "what it gains is then its rhythm's, and any schedule of such gaps has it."
    )


def test_a_weak_gain_over_measured_orders_takes_their_replays_too():
    found = measured([-0.051, -0.049] * 4, [0.02, -0.01] * 4)
    assert found["sentence"].startswith("A spacing gain, not awareness")
    settle = found["settle"]
    more = settle["more_blocks"]
    assert (settle["blocks"], settle["draws"]) == (8 + more, 3)
    # each block: the capture, the policy, 3 draws, 2 other orders
    assert settle["replays"] == 7 * more
    assert settle["wall_s"] == 7 * more * 150
    assert settle["sentence"].startswith(
        f"{8 + more} blocks of 3 draws and 2 other orders (there are 8 blocks of 3 draws and 2 "
        "other orders) settle it with probability "
    )
    assert f": {7 * more} more replays, " in settle["sentence"]
    # the emulator takes none, however many orders it has
    assert computed([-0.051, -0.049] * 4, [0.02, -0.01] * 4)["settle"]["blocks"] == 8 + more


def test_one_real_block_needs_the_other_orders_of_the_rest():
    settle = measured([-0.05], [0.04], orders=1)["settle"]
    assert (settle["blocks"], settle["replays"]) == (5, 4 * (3 + 1 + 2))
    assert settle["sentence"].startswith("At least 5 blocks of 3 draws and 1 other order in all, ")


def test_a_block_without_other_orders_leaves_the_gate_without_an_object():
    rows = with_orders(planted([-0.051, -0.049] * 3, [-0.001, 0.0, 0.001]), [0.04] * 6, 2)
    found = result(rows[(rows["policy"] != "matched_spacing") | (rows["seed"] != 3)])
    [gate] = [gate for gate in found["gates"] if gate["name"] == "matched spacing"]
    assert (found["verdict"], gate["applies"], found["spacing"]) == ("EARNED", False, None)


def test_an_invalid_replay_of_another_order_refuses_the_claim_whose_order_it_is():
    rows = with_orders(planted([-0.051, -0.049] * 3, [-0.001, 0.0, 0.001]), [0.04] * 6, 2)
    bad = (rows["policy"] == "matched_spacing") & (rows["seed"] == 2) & (rows["draw"] == 1)
    late = {"valid": False, "invalid_reason": "a merge ended 0.4 s off plan"}
    assert result(rows.mask(bad, rows.assign(**late)))["verdict"] == "REFUSED"
    other = rows.assign(control_of=rows["control_of"].mask(bad, "even"))
    assert result(other.mask(bad, other.assign(**late)))["verdict"] == "EARNED"


def test_a_gain_over_other_orders_is_part_of_what_settles_a_computed_case():
    settle = computed([-0.051, -0.049] * 2, [0.041, 0.039] * 2)["settle"]
    assert (settle["blocks"], settle["likely"]) == (5, "EARNED")
    assert settle["assumed"]["spacing_points"] == pytest.approx(4)
    scatter = 100 * np.std([0.041, 0.039] * 2, ddof=1)
    assert settle["assumed"]["spacing_sd_points"] == pytest.approx(scatter)
    assert (
        ", and the gain over its own gaps in other orders is +4.00 points and scatters by "
        f"{scatter:.2f}: 1 more emulated seed, no measurement."
    ) in settle["sentence"]


def test_a_spacing_gain_without_awareness_is_settled_by_no_design():
    found = computed([-0.051, -0.049] * 3, [0.01, -0.01] * 3)
    assert found["verdict"] == "INCONCLUSIVE"
    assert found["sentence"].startswith("A spacing gain, not awareness: a gain of +5.00 points")
    assert found["settle"]["blocks"] is None
    assert found["settle"]["sentence"] == (
        "No design of up to 200 blocks settles it with probability 0.8 if the gain over its own "
        "gaps in other orders is +0.00 points and scatters by 1.10: what it gains is then its "
        "rhythm's, and any schedule of such gaps has it."
    )


def test_a_weak_gain_over_other_orders_asks_for_as_many_blocks_as_show_it():
    found = computed([-0.051, -0.049] * 4, [0.02, -0.01] * 4)
    assert found["sentence"].startswith("A spacing gain, not awareness")
    settle = found["settle"]
    sd = float(np.std([0.02, -0.01] * 4, ddof=1))

    def shown(blocks):
        return chances(0.005, sd, blocks, level=0.05, min_gain=0.0).earned

    # the gain over matched random is beyond doubt, so the weak one alone decides
    assert shown(settle["blocks"] - 1) < 0.8 <= shown(settle["blocks"])
    assert settle["probability"] == pytest.approx(shown(settle["blocks"]), abs=1e-6)
    assert settle["likely"] == "EARNED"


@pytest.mark.parametrize(
    ("resolving_blocks", "sd", "earned"),
    [
        (5, 1e-9, 0.7),  # beyond doubt: the other gain decides
        (6, 1e-9, 0.0),  # five blocks cannot lower its p far enough
        (None, 1e-9, 0.0),  # nothing can
        (5, 10.0, 0.0),  # all noise: no more than its level, and both are asked for
    ],
)
def test_earned_needs_both_gains(resolving_blocks, sd, earned):
    narrowed = Awareness(0.01, sd, resolving_blocks).narrow(Chances(0.7, 0.1, 0.1), 5, 0.05)
    assert narrowed.earned == pytest.approx(earned)
    assert (narrowed.harmful, narrowed.tied) == (0.1, 0.1)


def test_only_the_inconclusive_have_something_to_settle():
    assert result(planted([-0.051, -0.049] * 3, [-0.001, 0.0, 0.001]))["settle"] is None
    assert result(planted([0.0] * 6, [-0.001, 0.0, 0.001]))["settle"] is None


def test_the_design_that_is_named_settles_most_studies():
    noise = Noise(0.012, 0.012)
    design, expected = smallest_design(0.025, noise, Design(1, 3), **RULES)
    assert 0.8 <= expected.settled < 1
    results = [
        result(study(-0.025, blocks=design.blocks, draws=design.draws, noise=0.012, seed=seed))
        for seed in range(10)
    ]
    # of 10 studies at 0.8 or more fewer than 6 are settled in 3 of 100 tests
    assert sum(one["verdict"] in ("EARNED", "TIED", "HARMFUL") for one in results) >= 6


def repeated(policy, pairs, **changes):
    """Return the rows of a policy that was measured twice in each block, with these rates."""
    return [
        row(policy, seed, rate, draw=draw, **changes)
        for seed, pair in enumerate(pairs)
        for draw, rate in enumerate(pair)
    ]


def test_noise_from_repeats_enters_the_interval():
    steady = [-0.004] * 6
    plain = result(planted(steady, [-0.001, 0.0, 0.001]))
    assert plain["verdict"] == "TIED"
    assert plain["gain"]["run_sd_points"] is None
    # two runs 6 points apart: SD 3 * sqrt(2); the third pair agrees: sqrt((18 + 18 + 0) / 3)
    runs = repeated("fixed_h_256", [(0.20, 0.26), (0.30, 0.24), (0.25, 0.25)], budget=6)
    found = result(planted(steady, [-0.001, 0.0, 0.001], *runs))
    noise = math.sqrt(12)
    gain = found["gain"]
    assert gain["run_sd_points"] == pytest.approx(noise)
    # t(0.95, 5 degrees) = 2.01505; a difference is one run less the mean of three
    half = 2.0150484 * noise * math.sqrt(1 + 1 / 3) / math.sqrt(6)
    assert gain["low_points"] == pytest.approx(0.4 - half, abs=1e-5)
    assert gain["high_points"] == pytest.approx(0.4 + half, abs=1e-5)
    assert gain["note"].endswith("raised to the noise from run to run")
    assert found["verdict"] == "INCONCLUSIVE"
    assumed = found["settle"]["assumed"]
    assert assumed["policy_sd_points"] == pytest.approx(noise)
    assert assumed["draw_sd_points"] == pytest.approx(noise)


def test_noise_from_repeats_enters_the_gain_over_measured_orders():
    runs = repeated("fixed_h_256", [(0.20, 0.26), (0.30, 0.24), (0.25, 0.25)], budget=6)
    rows = planted([-0.051, -0.049] * 2, [-0.001, 0.0, 0.001], *runs)
    assumed = result(with_orders(rows, [0.041, 0.039] * 2, 2))["settle"]["assumed"]
    # SD of a run: sqrt(12) points; a gain is the mean of two runs less one
    assert assumed["spacing_sd_points"] == pytest.approx(math.sqrt(12 * 1.5))


def test_small_noise_from_repeats_changes_nothing():
    scores = planted([-0.032, 0.008] * 3, [-0.01, 0.01])
    runs = pd.DataFrame(repeated("fixed_h_256", [(0.200, 0.201)] * 3, budget=6))
    both = pd.concat([scores, runs], ignore_index=True)
    one, other = result(scores), result(both)
    assert other["gain"]["run_sd_points"] == pytest.approx(0.1 / math.sqrt(2))
    for name in ("low_points", "high_points", "note"):
        assert one["gain"][name] == other["gain"][name]
    assert one["settle"] == other["settle"]


@pytest.mark.parametrize(
    "runs",
    [
        repeated("nosync", [(0.0, 0.06)] * 3, budget=0, regime="steady"),
        repeated("fixed_h_256", [(0.20, 0.26)] * 3, regime="steady"),
        repeated("fixed_h_256", [(0.20, 0.26)] * 3, tier="emulator"),
        repeated("fixed_h_256", [(0.20, 0.26)] * 3, role="tune"),
        repeated("fixed_h_256", [(0.20, 0.26)] * 3, valid=False, invalid_reason="late"),
        [],
    ],
)
def test_only_valid_repeats_of_the_regime_on_the_real_tier_count(runs):
    scores = planted([-0.004] * 6, [-0.001, 0.0, 0.001], *runs)
    facts = RUN_FACTS | {"thresholds_s": {"bursty": 2.0, "steady": 2.0}}
    document = judge(scores, {}, ["wa"], given_gates=PASSED, **facts)
    (found,) = [
        one for one in document["verdicts"] if (one["tier"], one["regime"]) == ("vllm", "bursty")
    ]
    assert found["verdict"] == "TIED"
    assert found["gain"]["run_sd_points"] is None


def test_repeats_of_runs_without_merges_are_no_noise_of_merges():
    scores = planted([-0.004] * 6, [-0.001, 0.0, 0.001])
    anchors = [row("nosync", seed, 0.005, budget=0, draw=1) for seed in range(6)]
    found = result(pd.concat([scores, pd.DataFrame(anchors)], ignore_index=True))
    assert found["gain"]["run_sd_points"] is None


def test_an_emulated_case_takes_seeds_and_no_measurement():
    scores = planted([-0.032, 0.008] * 3, [-0.01, 0.01], tier="emulator", capture="emulator")
    settle = result(scores)["settle"]
    assert settle["blocks"] * (settle["draws"] + 2) > 6 * 4
    assert (settle["replays"], settle["wall_s"]) == (0, 0)
    assert "one after another" not in settle["sentence"]
    assert settle["sentence"].endswith(", no measurement.")


def test_more_blocks_are_asked_for_the_nearer_the_margin_is():
    asked = [
        result(planted([gain + 0.04, gain - 0.04] * 3, [-0.001, 0.001]))["settle"]["blocks"]
        for gain in (-0.03, -0.025, -0.02)
    ]
    assert all(one <= other for one, other in pairwise(asked))
    assert asked[0] < asked[-1]


# one block; a clear gain on too few; a gain at the margin
@pytest.mark.parametrize("differences", [[-0.05], [-0.051, -0.049] * 2, [0.02, -0.04] * 3])
def test_blocks_too_short_for_the_margin_are_told(differences):
    def settle(requests):
        scores = planted(differences, [-0.01, 0.01], requests=requests, ok=requests, sent=requests)
        return result(scores)["settle"]

    long = settle(100)
    assert "longer blocks" not in long["sentence"]
    for requests, one in ((99, "1.01"), (3, "33.3")):
        told = (
            f"A block has {requests} requests, so one request is {one} points where 1 counts; "
            "longer blocks are needed. "
        )
        assert settle(requests) == long | {"sentence": told + long["sentence"]}
