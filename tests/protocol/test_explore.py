import pandas as pd
import pytest
from protocol.planted import row, study

from safesync.protocol.blocks import pool
from safesync.protocol.explore import explored


def tune(effect=-0.02, noise=0.0, **changes):
    rows = study(effect, blocks=2, draws=4, noise=noise, tier="emulator")
    return rows.assign(tier="emulator", role="tune", **changes)


def test_gains_are_means_over_tune_seeds():
    rows = tune()
    rows = pd.concat(
        [
            rows,
            pd.DataFrame(
                [
                    row("matched_spacing", seed, 0.2, tier="emulator", role="tune", control_of="wa")
                    for seed in (0, 1)
                ]
            ),
        ]
    )
    table = explored(rows, ["wa", "absent"], [0, 1])
    assert table["policy"].tolist() == ["wa"]
    found = table.iloc[0]
    assert found["gain"] == pytest.approx(2.0)
    assert found["matched_random"] - found["violations"] == pytest.approx(2.0)
    assert found["spacing_gain"] == pytest.approx(20 - found["violations"])
    assert found["better_draws"] == 0.0
    assert found["merges"] == 4


def test_judge_seeds_are_refused():
    with pytest.raises(ValueError, match=r"hold seeds \[1\], expected tune seeds \[0\] only"):
        explored(tune(), ["wa"], [0])
    with pytest.raises(ValueError, match="expected tune seeds"):
        explored(tune().assign(role="judge"), ["wa"], [0, 1])
    with pytest.raises(ValueError, match=r"seeds\.tune is empty"):
        explored(tune(), ["wa"], [])


def table(policy, violations=5, budget=4):
    return pd.DataFrame(
        [
            row("nosync", 1, 0.0, budget=0, tier="emulator"),
            row(policy, 1, 0.1, budget=budget, tier="emulator"),
            *(
                row("matched_random", 1, 0.1, budget=budget, draw=draw, violations=violations)
                for draw in range(3)
            ),
            row("matched_spacing", 1, 0.1, budget=budget, control_of=policy),
        ]
    )


def test_replays_that_policies_share_are_pooled_once():
    pooled = pool([table("a"), table("b"), table("c", budget=5)])
    assert pooled["policy"].value_counts().to_dict() == {
        "nosync": 1,
        "a": 1,
        "b": 1,
        "c": 1,
        "matched_random": 6,
        "matched_spacing": 3,
    }


def test_shared_replays_that_differ_are_refused():
    with pytest.raises(ValueError, match="two emulated tables differ in the replay"):
        pool([table("a"), table("b", violations=6)])
