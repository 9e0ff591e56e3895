import numpy as np
import pytest

from safesync.protocol.gates import Scope
from safesync.protocol.parity import training_parity

ALIKE = {
    "steps": 900,
    "islands": 4,
    "batch": 8,
    "parameters": 35_712,
    "slot": 2,
    "slots": 8,
    "corpus_sha256": "ab",
    "fragments": 1,
    "delay_steps": 0,
}


def run(policy, loss, training_seed=1, seed=23, draw=0, merges=(100, 300), **changes):
    return ALIKE | {
        "regime": "bursty",
        "policy": policy,
        "seed": seed,
        "draw": draw,
        "training_seed": training_seed,
        "merges": list(merges),
        "final_heldout_loss": loss,
        **changes,
    }


def study(differences, seed=23, base=1.8):
    """Two draws around ``base`` and a policy that is worse by ``differences``, a seed each."""
    return [
        made
        for number, difference in enumerate(differences)
        for made in (
            run("wise", base + number + difference, number, seed),
            run("matched_random_2", base + number - 0.25, number, seed, 0),
            run("matched_random_2", base + number + 0.25, number, seed, 1),
        )
    ]


def gate(runs, margin=0.02, alpha=0.05):
    scope, found = training_parity("wise", "bursty", runs, margin=margin, alpha=alpha)
    assert scope == Scope(regime="bursty", policy="wise")
    assert found.name == "training parity"
    assert found.refuses and found.applies
    return found


# differences 0, 0.01, 0.02: mean 0.01, standard error 0.01 / sqrt(3), t = 2.91999 with 2 df
HALF = 2.9199856 * 0.01 / 3**0.5


@pytest.mark.parametrize(
    ("shift", "margin", "passed"),
    [
        (0.0, 0.03, True),
        (0.0, 0.01 + HALF + 1e-6, True),
        (0.0, 0.01 + HALF - 1e-6, None),
        (0.0, 0.02, None),
        (0.02, 0.02, None),
        (0.01 + HALF - 1e-6, 0.02, None),
        (0.01 + HALF + 1e-6, 0.02, False),
        (0.04, 0.02, False),
        (-1.0, 0.02, True),
    ],
)
def test_gate_by_hand(shift, margin, passed):
    found = gate(study(np.array([0.0, 0.01, 0.02]) + shift), margin)
    assert found.passed is passed
    assert found.figure == pytest.approx(0.01 + shift + HALF, abs=1e-7)
    assert found.limit == margin
    assert ("more seeds" in found.sentence) == (passed is None)


def test_sentence_names_figure_seeds_and_margin():
    assert gate(study([0.0, 0.01, 0.02]), 0.03).sentence == (
        "Final held-out loss +0.0100 nats against matched-random schedules of its budget, at most "
        "+0.0269 (95%, 3 training seeds), margin 0.03."
    )


def test_one_training_seed_decides_nothing():
    found = gate(study([-1.0]))
    assert found.passed is None
    assert found.figure is None
    assert "one training seed has no spread, at least two are needed" in found.sentence


def test_two_training_seeds_are_enough_to_decide():
    # t = 6.3138 with 1 df, standard error 0.001
    found = gate(study([0.001, 0.003]), 0.0084)
    assert found.figure == pytest.approx(0.002 + 0.0063138, abs=1e-6)
    assert found.passed is True
    assert gate(study([0.001, 0.003]), 0.0083).passed is None


def test_alpha_is_the_chance_to_pass_a_schedule_at_the_margin():
    rng = np.random.default_rng(7)
    studies = 0.02 + 0.01 * rng.standard_normal((1_000, 3))
    passed = sum(gate(study(differences)).passed is True for differences in studies)
    assert 30 <= passed <= 71  # 50, three standard deviations of 6.9


def test_blocks_are_averaged_and_not_counted_as_seeds():
    both = study([0.0, 0.02], seed=23) + study([0.02, 0.04], seed=29, base=2.5)
    one = study([0.01, 0.03])
    assert gate(both).figure == pytest.approx(gate(one).figure)
    assert "2 training seeds" in gate(both).sentence


def test_other_policies_regimes_and_budgets_are_ignored():
    runs = study([0.0, 0.01, 0.02])
    others = [
        run("fixed_h_256", 9.0, 1),
        run("matched_random_3", 9.0, 1, merges=(1, 2, 3)),
        run("wise", 9.0, 1) | {"regime": "steady"},
    ]
    assert gate(runs + others) == gate(runs)


def test_nothing_trained_is_not_available():
    found = gate([run("fixed_h_256", 1.0)])
    assert found.passed is None
    assert found.sentence == "No training run on this policy's schedules exists."


@pytest.mark.parametrize("missing", ["wise", "matched_random_2"])
def test_a_missing_run_is_named(missing):
    runs = study([0.0, 0.01])
    runs += [made for made in study([0.0, 0.01], seed=29) if made["policy"] != missing]
    if missing == "wise":
        runs.append(run("wise", 1.0, 1, seed=29))
    found = gate(runs)
    assert found.passed is None
    assert found.sentence.startswith("Block 29, training seed 0: a run of the policy or of a")


@pytest.mark.parametrize("name", ALIKE)
def test_runs_that_differ_in_more_than_the_schedule_are_refused(name):
    runs = study([0.0, 0.01])
    runs[1][name] = "other"
    with pytest.raises(ValueError, match=f"training seed 0, differ in {name}; expected the same"):
        gate(runs)
