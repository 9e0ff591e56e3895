"""Policies whose verdict is known, from arrivals to the judge, on every tier that carries them."""

from functools import cache
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from protocol.planted_emulated import (
    Block,
    emulated_study,
    judged,
    measured_study,
    overlap_study,
    parity_of,
    transfer_of,
)
from protocol.planted_overlap import BUDGET, CORRIDOR

from safesync.policies import Decision, Policy, load_policy
from safesync.policies.causality import audit
from safesync.protocol.causality import causality
from safesync.protocol.gates import Gate, Scope

PASSED = [
    (Scope(), Gate(name, True, None, None, "Passed."))
    for name in ("effect-size transfer", "causality", "training parity")
]


@cache
def blocks_of(first=0, count=6, *, locked=False):
    return [Block(seed, locked) for seed in range(first, first + count)]


class Peeking(Policy):
    """Reaches through the counts of completed seconds for those to come."""

    name: ClassVar[str] = "peeking"

    def decide(self, observation):
        now = int(observation.now_s)
        coming = observation.counts_per_s.base[now : now + 4].sum()
        return Decision(merge=bool(observation.gap >= 14 and coming < 8))


@cache
def oracle(merges=BUDGET):
    """Merge starts of the real wa_offline, with everything known."""
    return {block: block.decided(load_policy("wa_offline")(), merges) for block in blocks_of()}


def test_the_oracle_is_earned_on_every_tier_with_all_gates_computed():
    given = [
        transfer_of(blocks_of(), BUDGET),
        causality({"policy": "oracle", "blocks": []}),
        parity_of("oracle", BUDGET),
    ]
    assert [gate.passed for _, gate in given] == [True, None, True]
    scores = pd.concat(
        [measured_study("oracle", oracle()), emulated_study("oracle", oracle())],
        ignore_index=True,
    )
    found = judged("oracle", scores, overlap_study("oracle", oracle()), given)
    assert list(found) == ["vllm", "emulator", "overlap"]
    for tier, result in found.items():
        assert (result["verdict"], result["open_gates"]) == ("EARNED", []), tier
        assert result["gain"]["points"] > 2
        assert result["claim"]["p_claim"] == 2**-6
    assert found["emulator"]["spacing"]["points"] > 0


@pytest.mark.parametrize("first", [0, 100, 200])
def test_a_policy_that_equals_matched_random_is_never_earned(first):
    schedules = {
        block: CORRIDOR.starts(
            CORRIDOR.sample(BUDGET, 1, np.random.default_rng(block.seed + 1000))[0]
        )
        for block in blocks_of(first)
    }
    rows = [emulated_study("blind", schedules), measured_study("blind", schedules)]
    scores = pd.concat(rows, ignore_index=True)
    for tier, result in judged("blind", scores, given=PASSED).items():
        assert result["verdict"] in ("TIED", "INCONCLUSIVE"), tier


def test_aiming_for_the_bursts_is_harmful():
    schedules = {
        block: CORRIDOR.starts(CORRIDOR.optimum(BUDGET, -block.cost)) for block in blocks_of()
    }
    scores = pd.concat(
        [measured_study("seeker", schedules), emulated_study("seeker", schedules)],
        ignore_index=True,
    )
    found = judged("seeker", scores, overlap_study("seeker", schedules), PASSED)
    assert list(found) == ["vllm", "emulator", "overlap"]
    for tier, result in found.items():
        assert result["verdict"] == "HARMFUL", tier
        assert result["gain"]["points"] < -2


def test_an_even_period_that_knows_nothing_is_a_spacing_gain():
    """Its windows end where the bursts of all traces begin, by the luck of its phase."""
    fixed_h = load_policy("fixed_h")
    policy = fixed_h(fixed_h.Parameters(h=16))
    schedules = {block: block.decided(policy) for block in blocks_of(locked=True)}
    scores = emulated_study("even", schedules)
    result = judged("even", scores, given=PASSED)["emulator"]
    gates = {gate["name"]: gate["passed"] for gate in result["gates"]}
    assert gates["envelope"] and gates["gain"] and gates["resolution"]
    assert gates["matched spacing"] is False
    assert result["verdict"] == "INCONCLUSIVE"
    assert result["sentence"].startswith("A spacing gain, not awareness")
    assert result["settle"]["blocks"] is None
    assert result["settle"]["sentence"].endswith("any schedule of such gaps has it.")
    assert result["spacing"]["points"] == pytest.approx(0, abs=1e-9)


def test_fewer_merges_than_the_control_are_refused():
    scores = measured_study("oracle", oracle(BUDGET - 1), draws=3, control=BUDGET)
    result = judged("oracle", scores, given=PASSED)["vllm"]
    assert result["verdict"] == "REFUSED"
    assert result["sentence"].startswith("Gate 'budget match' failed")
    assert f"made {BUDGET - 1} merges, its control {BUDGET}" in result["sentence"]


def test_a_saturated_client_is_refused():
    late = measured_study("oracle", oracle(), draws=3, gap_s=0.2)
    rows = late[late["policy"] == "oracle"]
    assert not rows["valid"].any()
    assert late[late["policy"] != "oracle"]["valid"].all()
    result = judged("oracle", late, given=PASSED)["vllm"]
    assert result["verdict"] == "REFUSED"
    assert result["sentence"].startswith("Gate 'measurement valid' failed. 6 of 30 replays are")
    assert "client lateness p99" in result["sentence"]
    # the same replays by a client that keeps up
    on_time = measured_study("oracle", oracle(), draws=3)
    assert judged("oracle", on_time, given=PASSED)["vllm"]["verdict"] == "EARNED"


def test_a_peeking_policy_is_refused():
    schedules = {block: block.decided(Peeking()) for block in blocks_of()}
    scores = emulated_study("peeking", schedules)
    audits = [
        {
            "regime": "bursty",
            "seed": block.seed,
            **audit(
                Peeking, CORRIDOR, block.trace, regime="bursty", seed=block.seed, cuts=10
            ).document(),
        }
        for block in schedules
    ]
    given = [*PASSED, causality({"policy": "peeking", "blocks": audits})]
    result = judged("peeking", scores, given=given)["emulator"]
    assert result["verdict"] == "REFUSED"
    assert result["sentence"].startswith("Gate 'causality' failed. bursty, seed")
    # what it gained by that would have been a claim
    assert judged("peeking", scores, given=PASSED)["emulator"]["verdict"] == "EARNED"


def test_a_schedule_that_trains_worse_is_refused():
    scores = measured_study("oracle", oracle(), draws=3)
    given = [*PASSED[:2], parity_of("oracle", BUDGET, worse=0.05)]
    result = judged("oracle", scores, given=given)["vllm"]
    assert result["verdict"] == "REFUSED"
    assert result["sentence"].startswith("Gate 'training parity' failed")
