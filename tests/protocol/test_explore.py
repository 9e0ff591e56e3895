import pandas as pd
import pytest
from protocol.planted import row, study

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
