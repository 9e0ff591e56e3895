"""Planted studies with a known truth, and what the judge says of them."""

import json

import numpy as np
import pandas as pd
import pytest
from protocol.planted import RUN_FACTS, row, study

from safesync.protocol.document import VerdictDocument
from safesync.protocol.gates import Gate, Scope
from safesync.protocol.verdict import judge
from safesync.tables import write_document

ALL_PASSED = [
    (Scope(), Gate(name, True, 1.0, 1.0, "Passed elsewhere."))
    for name in ("effect-size transfer", "causality", "training parity", "matched spacing")
]


def judged(scores, claims=("wa",), rules=None, **changes):
    facts = RUN_FACTS | {"baselines": ["fixed_h_256"]} | changes
    return judge(scores, rules or {}, list(claims), **facts)


def verdict(scores, **changes):
    return judged(scores, **changes)["verdicts"][0]


def test_large_real_gain_is_earned_when_every_gate_passed():
    result = verdict(study(-0.03), given_gates=ALL_PASSED)
    assert result["verdict"] == result["would_be"] == "EARNED"
    assert result["open_gates"] == []
    assert result["gain"]["points"] == pytest.approx(3, abs=0.5)
    assert result["gain"]["low_points"] < 3 < result["gain"]["high_points"]
    assert result["claim"]["p_claim"] == 2**-6


def test_large_real_gain_is_provisional_while_gates_are_open():
    result = verdict(study(-0.03))
    assert (result["verdict"], result["would_be"]) == ("PROVISIONAL", "EARNED")
    assert result["open_gates"] == ["effect-size transfer", "causality", "training parity"]
    assert result["sentence"].startswith("Would be EARNED")


@pytest.mark.parametrize("seed", range(20))
def test_a_policy_that_equals_random_is_never_earned(seed):
    result = verdict(study(0.0, seed=seed, noise=0.01), given_gates=ALL_PASSED)
    assert result["verdict"] in ("TIED", "INCONCLUSIVE")


def test_aiming_for_bursts_is_harmful():
    result = verdict(study(0.05))
    assert result["verdict"] == "HARMFUL"
    assert result["gain"]["points"] < -4
    assert result["harm"]["p_holm"] == 2**-6


def test_a_small_sure_gain_is_tied_not_earned():
    result = verdict(study(-0.004, noise=0.0005), given_gates=ALL_PASSED)
    assert result["claim"]["p_holm"] <= 0.05
    assert result["verdict"] == "TIED"


def exactly(difference, blocks=6):
    """Return a study in which the policy is off each of its draws by ``difference``."""
    rates = {"matched_random": 0.11, "wa": 0.11 + difference, "nosync": 0.0}
    rows = [
        row(policy, seed, rate, draw=draw, budget=0 if policy == "nosync" else 4)
        for seed in range(blocks)
        for policy, rate in rates.items()
        for draw in range(9 if policy == "matched_random" else 1)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize("margin", [0.01, 0.02, 0.03])
def test_a_gain_or_a_loss_exactly_at_the_margin_counts(margin):
    """0.11 - 0.01 and 0.10 differ by a rounding error, which must not decide."""
    rules = {"min_gain": margin}
    for side, word in ((-margin, "EARNED"), (margin, "HARMFUL")):
        at = verdict(exactly(side), rules=rules, given_gates=ALL_PASSED)
        assert at["verdict"] == word
        below = verdict(exactly(side * 0.999), rules=rules, given_gates=ALL_PASSED)
        assert below["verdict"] == "TIED"


def test_harm_needs_as_many_blocks_as_a_claim():
    rules = {"alpha": 0.1}
    assert verdict(exactly(0.05, blocks=5), rules=rules)["verdict"] == "HARMFUL"
    few = verdict(exactly(0.05, blocks=4), rules=rules)
    assert few["harm"]["p_holm"] == 2**-4
    assert few["verdict"] == "INCONCLUSIVE"


def test_tied_up_to_the_margin_from_both_sides():
    scores = study(0.0, noise=0.004)
    gain = verdict(scores)["gain"]
    reach = max(abs(gain["low_points"]), abs(gain["high_points"])) / 100
    for share, word in ((1 + 1e-6, "TIED"), (1 - 1e-6, "INCONCLUSIVE")):
        assert verdict(scores, rules={"min_gain": reach * share})["verdict"] == word


def test_fewer_merges_than_the_control_is_refused():
    result = verdict(study(-0.03, budget=3))
    assert result["verdict"] == "REFUSED"
    assert result["sentence"].startswith("Gate 'budget match' failed")
    assert "3 merges, its control 4" in result["sentence"]


@pytest.mark.parametrize(
    "changes", [{"valid": False, "invalid_reason": "late"}, {"lateness_p99_s": 0.041}]
)
def test_an_invalid_measurement_is_refused(changes):
    result = verdict(study(-0.03, **changes), given_gates=ALL_PASSED)
    assert result["verdict"] == result["would_be"] == "REFUSED"
    assert "measurement valid" in result["sentence"]


def test_an_invalid_calibration_capture_is_refused_on_the_real_tier_of_its_regime():
    short = {"valid": False, "invalid_reason": "3 of 9 answers have another length than asked"}

    def with_capture(scores, **changes):
        capture = row("nosync", 99, 0.0, budget=0, role="calibration", **changes)
        return pd.concat([scores, pd.DataFrame([capture])])

    scores = study(-0.03)
    result = verdict(with_capture(scores, lateness_p99_s=0.02, **short), given_gates=ALL_PASSED)
    assert result["verdict"] == "REFUSED"
    assert result["gates"][0]["figure"] == 0.02
    assert "1 of 1 calibration capture is invalid" in result["sentence"]
    assert "nosync draw 0, seed 99: 3 of 9 answers" in result["sentence"]
    plain = verdict(scores, given_gates=ALL_PASSED)
    for harmless in ({}, short | {"regime": "steady"}, short | {"tier": "emulator"}):
        others = judged(with_capture(scores, **harmless), given_gates=ALL_PASSED)
        assert others["verdicts"] == [plain]
    emulated = with_capture(scores.assign(tier="emulator"), tier="emulator", **short)
    assert verdict(emulated, given_gates=ALL_PASSED)["verdict"] == "EARNED"


def test_mixed_machines_without_anchors_are_refused():
    result = verdict(study(-0.03, fingerprint="machine-2"))
    assert result["verdict"] == "REFUSED"
    assert "'fingerprint'" in result["sentence"]


def test_a_gate_that_failed_elsewhere_refuses():
    peeking = (Scope(policy="wa"), Gate("causality", False, 3, 0, "3 decisions changed."))
    result = verdict(study(-0.03), given_gates=[*ALL_PASSED, peeking])
    assert result["verdict"] == "REFUSED"
    assert "3 decisions changed" in result["sentence"]


def test_a_spacing_gain_is_not_earned():
    spacing = (
        Scope(),
        Gate("matched spacing", False, 0.4, 0.05, "Even spacing does as well.", refuses=False),
    )
    scores = study(-0.03).assign(tier="emulator")
    result = verdict(scores, given_gates=[*ALL_PASSED, spacing])
    assert result["verdict"] == "INCONCLUSIVE"


def test_one_block_of_three_draws_cannot_tell():
    result = verdict(study(-0.03, blocks=1, draws=3))
    assert result["verdict"] == "INCONCLUSIVE"
    assert result["sentence"] == (
        "1 block, 3 draws: smallest attainable p = 0.5, INCONCLUSIVE; 5 blocks would allow 0.031."
    )
    assert result["gain"]["low_points"] is None
    settle = result["settle"]
    assert (settle["blocks"], settle["more_blocks"], settle["draws"]) == (5, 4, 3)
    assert (settle["replays"], settle["wall_s"]) == (20, 20 * 150)
    assert (settle["probability"], settle["assumed"]) == (None, None)
    assert settle["sentence"] == (
        "At least 5 blocks of 3 draws in all, so that p can fall low enough: 20 more replays, 50 "
        "min one after another. One block gives no estimate of the noise."
    )


def test_four_claims_need_seven_blocks():
    frames = [study(-0.03, policy=name, seed=0) for name in ("a", "b", "c", "d")]
    both = pd.concat(frames).drop_duplicates(["policy", "seed", "draw"])
    document = judged(both, claims="abcd")
    assert document["family"] == {"vllm": 4}
    for result in document["verdicts"]:
        assert result["verdict"] == "INCONCLUSIVE"
        assert "7 blocks would allow 0.0078" in result["sentence"]


def test_a_claim_without_replays_still_counts_in_the_family():
    document = judged(study(-0.03), claims=["wa", "never_run"])
    wa, missing = document["verdicts"]
    assert wa["claim"]["p_holm"] == 2 * 2**-6
    assert missing["verdict"] == "INCONCLUSIVE"
    assert missing["sentence"] == "No judged replay of this policy exists."


def test_a_wide_interval_is_inconclusive_and_says_what_would_settle_it():
    result = verdict(study(0.0, noise=0.05, seed=3))
    assert result["verdict"] == "INCONCLUSIVE"
    assert result["settle"]["resolving_blocks"] == 5
    assert "differences scatter by" in result["settle"]["sentence"]


def test_only_judge_rows_are_evidence():
    scores = study(-0.03)
    tuned = study(0.5).assign(role="tune", seed=lambda rows: rows["seed"] + 100)
    assert judged(pd.concat([scores, tuned]))["verdicts"] == judged(scores)["verdicts"]
    document = judged(scores.assign(role="calibration"))
    assert document["verdicts"] == []
    assert document["answer"].startswith("No claim was judged")


def test_policies_that_are_not_claimed_are_described():
    document = judged(study(-0.03))
    (baseline,) = document["described"]
    assert (baseline["policy"], baseline["verdict"]) == ("fixed_h_256", None)
    assert baseline["gain"] is None
    assert judged(study(-0.03), claims=[])["described"][1]["sentence"].startswith("Not claimed")


def test_effects_add_up():
    (part,) = verdict(study(-0.03))["decomposition"]
    assert part["baseline"] == "fixed_h_256"
    assert part["total_points"] == pytest.approx(part["budget_points"] + part["placement_points"])
    assert part["budget_points"] == pytest.approx(-5, abs=0.2)
    assert part["placement_points"] == pytest.approx(-3, abs=0.5)


def test_gain_in_requests_is_rate_times_ten_minutes():
    gain = verdict(study(-0.03))["gain"]
    assert gain["requests_per_sidecar_10min"] == pytest.approx(gain["rate"] * 1000 / 100 * 600)


def test_draws_are_those_of_the_policys_budget():
    scores = pd.concat(
        [study(-0.03), pd.DataFrame([row("matched_random", s, 0.9, budget=5) for s in range(6)])]
    )
    assert verdict(scores)["gain"] == verdict(study(-0.03))["gain"]


def test_strongest_tier_answers_and_tiers_are_judged_apart():
    scores = pd.concat([study(-0.03).assign(tier="emulator"), study(0.0, blocks=1, draws=3)])
    document = judged(scores)
    assert [result["tier"] for result in document["verdicts"]] == ["vllm", "emulator"]
    assert document["answer"] == (
        "No claim is earned on the vllm tier: wa in bursty is INCONCLUSIVE; nor is any on the "
        "computed tiers (emulator)."
    )


def test_document_is_finite_json_of_its_schema(tmp_path):
    scores = study(-0.03, lateness_p99_s=np.inf)
    document = judged(scores, seeds={"calibration": [11], "tune": [12], "judge": [0]})
    write_document(tmp_path / "verdict.json", document)
    read = json.loads((tmp_path / "verdict.json").read_text())
    assert VerdictDocument.model_validate(read).model_dump(mode="json") == document


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"no SLO threshold for regime \['bursty'\]"):
        judged(study(0.0), thresholds_s={})
    with pytest.raises(ValueError, match="min_gains"):
        judged(study(0.0), rules={"min_gains": 0.01})
    with pytest.raises(ValueError, match="unknown tier"):
        judged(study(0.0).assign(tier="paper"))


AGREEMENT = {
    "replays": 5,
    "schedules": 5,
    "error_points": 0.5,
    "low_points": -0.5,
    "high_points": 1.5,
    "level": 0.9,
    "worst_points": 2.0,
    "noise_points": None,
    "noise_nosync_points": None,
    "repeated": 0,
    "within_noise": None,
    "figures": [],
    "sentence": "Off by +0.5 points.",
}
EMULATED = {"regime": "bursty", "calibrated": True, "why": None, "warnings": []}


def emulated(effect, spacing=0.03, **changes):
    """Return an emulated study whose gaps in other orders are ``spacing`` worse than the policy."""
    rows = study(effect, draws=99, **changes).assign(tier="emulator", capture="emulator")
    own = rows[rows["policy"] == "wa"]
    orders = [
        own.assign(
            policy="matched_spacing",
            control_of="wa",
            draw=draw,
            violation_rate=own["violation_rate"] + spacing + 0.001 * (draw % 3),
        )
        for draw in range(99)
    ]
    return pd.concat([rows, *orders], ignore_index=True)


def emulated_verdict(scores, agreement=AGREEMENT, **changes):
    return judged(scores, emulated=[EMULATED | {"agreement": agreement}], **changes)


def test_the_emulated_tier_is_judged_by_itself_and_never_mixed():
    both = pd.concat([study(0.05), emulated(-0.03)], ignore_index=True)
    document = emulated_verdict(both, given_gates=ALL_PASSED)
    real, computed = document["verdicts"]
    assert (real["tier"], real["verdict"]) == ("vllm", "HARMFUL")
    assert (computed["tier"], computed["verdict"]) == ("emulator", "EARNED")
    assert document["family"] == {"vllm": 1, "emulator": 1}
    assert computed["gain"]["points"] == pytest.approx(3, abs=0.6)
    assert {block["draws"] for block in computed["blocks"]} == {99}
    assert {block["capture"] for block in computed["blocks"]} == {"emulator"}
    assert real["blocks"][0]["spacing_violation_rate"] is None


def test_blocks_in_which_no_draw_differs_are_counted_in_the_sentence():
    scores = study(0.0, blocks=6, draws=3)
    flat = scores["seed"].isin([1, 4]) & scores["policy"].isin(["wa", "matched_random"])
    result = verdict(scores.assign(violation_rate=scores["violation_rate"].mask(flat, 0.0)))
    assert result["sentence"].endswith(
        " In 2 of 6 blocks every draw comes out as the policy does, so nothing can be told there."
    )
    assert "comes out" not in verdict(scores)["sentence"]
    alone = verdict(scores[scores["seed"] == 1].assign(violation_rate=0.2))
    assert " In its one block every draw comes out as the policy does" in alone["sentence"]


def test_too_little_to_gain_is_said():
    flat = study(0.0, blocks=1, draws=3)
    drawn = flat["policy"] == "matched_random"
    poor = verdict(flat.assign(violation_rate=flat["violation_rate"].mask(drawn, 0.0099)))
    assert poor["verdict"] == "INCONCLUSIVE"
    assert poor["sentence"].endswith(
        " No policy could have gained 1 point: its matched-random draws violate in 0.99 % of all "
        "requests."
    )
    assert poor["settle"]["sentence"].startswith("A harder load or objective first, for nothing")
    rich = verdict(flat.assign(violation_rate=flat["violation_rate"].mask(drawn, 0.01)))
    assert "could have gained" not in rich["sentence"]


def test_requests_saved_have_the_interval_of_the_gain():
    gain = verdict(study(-0.03))["gain"]
    # 1000 requests in 100 s are 6000 in ten minutes
    for end in ("low", "high"):
        requests = gain[f"{end}_requests_per_sidecar_10min"]
        assert requests == pytest.approx(60 * gain[f"{end}_points"])
    alone = verdict(study(-0.03, blocks=1))["gain"]
    assert alone["low_requests_per_sidecar_10min"] is None


def test_every_emulated_result_carries_how_far_the_emulator_is_off():
    document = emulated_verdict(pd.concat([study(0.05), emulated(-0.03)], ignore_index=True))
    real, computed = document["verdicts"]
    assert real["caveat"] is None
    assert computed["caveat"] == "Off by +0.5 points."
    described = {result["tier"]: result["caveat"] for result in document["described"]}
    assert described == {"vllm": None, "emulator": "Off by +0.5 points."}
    assert document["emulated"] == [EMULATED | {"agreement": AGREEMENT}]
    alone = emulated_verdict(emulated(-0.03), agreement=None)["verdicts"][0]
    assert alone["caveat"] == "No real replay of this run shows how far the emulator is off."


def test_a_gain_that_other_orders_of_the_gaps_share_is_no_awareness():
    rhythm = emulated(-0.03, spacing=0.0).assign(
        violation_rate=lambda rows: rows["violation_rate"].round(2)
    )
    passed = [gate for gate in ALL_PASSED if gate[1].name != "matched spacing"]
    result = emulated_verdict(rhythm, given_gates=passed)["verdicts"][0]
    gates = {gate["name"]: gate["passed"] for gate in result["gates"]}
    assert gates["envelope"] and gates["gain"]
    assert gates["matched spacing"] is False
    assert result["verdict"] == "INCONCLUSIVE"
    assert "a spacing gain, not awareness" in result["sentence"].lower()


def test_an_emulated_study_settles_without_a_measurement():
    result = emulated_verdict(emulated(-0.03, blocks=2), given_gates=ALL_PASSED)["verdicts"][0]
    assert result["verdict"] == "INCONCLUSIVE"
    assert (result["settle"]["replays"], result["settle"]["wall_s"]) == (0, 0)
    assert result["settle"]["probability"] >= 0.8
    sentence = result["settle"]["sentence"]
    assert "more emulated seeds, no measurement." in sentence
    assert "the gain over its own gaps in other orders is +3.10 points" in sentence
    assert "one after another" not in sentence


def test_why_there_is_no_emulated_tier_stands_in_the_document():
    absent = EMULATED | {"calibrated": False, "why": "too few requests.", "agreement": None}
    document = judged(study(-0.03), emulated=[absent])
    assert {result["tier"] for result in document["verdicts"]} == {"vllm"}
    assert document["emulated"][0]["why"] == "too few requests."


@pytest.mark.parametrize("policy", ["nosync", "probe"])
def test_an_invalid_capture_that_the_model_rests_on_refuses_the_emulated_tier(policy):
    capture = row(policy, 99, 0.0, role="calibration", valid=False, invalid_reason="late")
    scores = pd.concat([emulated(-0.03), pd.DataFrame([capture])], ignore_index=True)
    result = emulated_verdict(scores, given_gates=ALL_PASSED)["verdicts"][0]
    assert (result["tier"], result["verdict"]) == ("emulator", "REFUSED")
    assert "is invalid, and the model rests on it; " + policy in result["sentence"]
