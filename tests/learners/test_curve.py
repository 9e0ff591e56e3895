"""The built-in learner curve: its law, its noise, its bytes."""

import hashlib

import numpy as np
import pytest

from safesync.learners.curve import builtin_curve
from safesync.tables.learners import LEARNERS


def losses(rows):
    return rows["loss"].to_numpy().reshape(rows["island"].nunique(), -1)


def test_rows_fit_the_table(tmp_path):
    rows = builtin_curve(islands=2, steps=300, seed=1, step_s=0.0625)
    LEARNERS.write(tmp_path / "part.parquet", rows)
    read = LEARNERS.read(tmp_path / "part.parquet")
    assert len(read) == 600
    assert read["island"].tolist() == [0] * 300 + [1] * 300
    assert read["step"].tolist() == [*range(1, 301)] * 2
    assert read["tokens"].tolist() == [2_048 * step for step in range(1, 301)] * 2
    assert (read["step_s"] == 0.0625).all()


def test_the_mean_follows_the_scaling_law():
    loss = losses(builtin_curve(islands=400, steps=1_025, seed=2, step_s=0.1)).mean(axis=0)
    # 1.69 + 406.4 / 135e6**0.34 + 410.7 / (20e6 + 2048 * step)**0.28
    tolerance = 4 * 0.02 / np.sqrt(400)
    assert loss[0] == pytest.approx(6.0980, abs=tolerance)
    assert loss[1_023] == pytest.approx(5.9960, abs=tolerance)


def test_512_steps_move_the_loss_by_the_published_scale():
    loss = losses(builtin_curve(islands=400, steps=513, seed=2, step_s=0.1)).mean(axis=0)
    assert loss[0] - loss[512] == pytest.approx(0.05, abs=0.006)


def test_noise_is_independent_between_islands_batches_and_seeds():
    loss = losses(builtin_curve(islands=2, steps=4_000, seed=1, step_s=0.1))
    other = losses(builtin_curve(islands=1, steps=4_000, seed=2, step_s=0.1))
    noise = np.vstack([loss, other])
    noise = noise - noise.mean(axis=0)  # three of them: each pair correlates at -1/2
    pairs = np.corrcoef(noise)[np.triu_indices(3, 1)]
    np.testing.assert_allclose(pairs, -0.5, atol=5 / np.sqrt(4_000))
    batch = np.diff(loss[0])
    assert np.std(batch) == pytest.approx(0.02 * np.sqrt(2), rel=0.05)
    assert np.corrcoef(batch[:-1], batch[1:])[0, 1] == pytest.approx(-0.5, abs=0.06)


def test_more_islands_or_steps_leave_the_first_ones_alone():
    small = losses(builtin_curve(islands=2, steps=50, seed=3, step_s=0.1))
    large = losses(builtin_curve(islands=5, steps=80, seed=3, step_s=0.1))
    np.testing.assert_array_equal(small, large[:2, :50])


def test_values_are_pinned():
    rows = builtin_curve(islands=2, steps=200, seed=1, step_s=0.0625)
    rounded = np.rint(rows["loss"].to_numpy() * 1e9).astype("<i8")
    assert (
        hashlib.sha256(rounded.tobytes()).hexdigest()
        == "c70bae0ed57e22385aae0159d88dbaf055404938074440e375a14d961d5b6277"
    )


@pytest.mark.parametrize(("islands", "steps"), [(0, 10), (2, 0)])
def test_nothing_to_make_is_an_error(islands, steps):
    with pytest.raises(ValueError, match="at least 1"):
        builtin_curve(islands, steps, 1, 0.1)
