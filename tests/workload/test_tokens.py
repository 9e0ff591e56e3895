"""Token lengths: fixed, lognormal and empirical, with clipping counted."""

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from safesync.workload.tokens import Empirical, Fixed, Length, Lognormal, TokenLengths


def rng():
    return np.random.default_rng(5)


def test_fixed_is_fixed_and_takes_nothing_from_the_stream():
    used = rng()
    lengths, clipped = Fixed(tokens=48).sample(3, used)
    assert lengths.tolist() == [48, 48, 48]
    assert lengths.dtype == np.int32
    assert clipped == 0
    assert used.random() == rng().random()


def test_lognormal_has_its_median_and_sigma():
    lengths, clipped = Lognormal(median=2_000, sigma=0.6, min=1, max=10**6).sample(40_000, rng())
    assert clipped == 0
    assert np.median(lengths) == pytest.approx(2_000, rel=0.02)
    assert np.log(lengths).std() == pytest.approx(0.6, rel=0.02)


def test_clipping_is_counted_exactly():
    law = Lognormal(median=100, sigma=0.5, min=80, max=150)
    lengths, clipped = law.sample(10_000, rng())
    free, _ = Lognormal(median=100, sigma=0.5, min=1, max=10**6).sample(10_000, rng())
    assert (lengths.min(), lengths.max()) == (80, 150)
    assert clipped == np.count_nonzero((free < 80) | (free > 150))
    np.testing.assert_array_equal(lengths, np.clip(free, 80, 150))


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"law": "fixed", "tokens": 0}, "tokens"),
        ({"law": "lognormal", "median": 10, "sigma": 1, "min": 20, "max": 30}, "median"),
        ({"law": "lognormal", "median": 10, "sigma": -1, "max": 30}, "sigma"),
        ({"law": "lognormal", "median": 10, "sigma": 1, "max": 30, "mean": 3}, "mean"),
        ({"law": "uniform"}, "law"),
    ],
)
def test_bad_config_names_the_field(config, field):
    with pytest.raises(ValidationError, match=field):
        TypeAdapter(Length).validate_python(config)


def test_unknown_key_is_refused():
    with pytest.raises(ValidationError, match="answer"):
        TokenLengths.model_validate({"answer": {"law": "fixed", "tokens": 3}})


def test_empirical_draws_its_values_by_weight_and_counts_what_it_clips():
    law = Empirical(values=(2, 50, 700), weights=(1, 6, 3), min=10, max=600)
    lengths, clipped = law.sample(40_000, rng())
    assert lengths.dtype == np.int32
    values, counts = np.unique(lengths, return_counts=True)
    assert values.tolist() == [10, 50, 600]
    assert np.all(np.abs(counts / 40_000 - [0.1, 0.6, 0.3]) < 4 * 0.5 / np.sqrt(40_000))
    assert clipped == counts[0] + counts[2]
    even, none = Empirical(values=(3, 4), max=9).sample(40_000, rng())
    assert abs(np.mean(even == 3) - 0.5) < 4 * 0.5 / np.sqrt(40_000)
    assert none == 0


def test_empirical_draws_from_a_column_of_a_trace(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,5,7\n1,5,8\n2,5,8\n3,900,8\n")
    law = Empirical(path=str(path), max=100)
    lengths, clipped = law.sample(10_000, rng())
    assert abs(np.mean(lengths == 5) - 0.75) < 4 * 0.5 / 100
    assert clipped == np.count_nonzero(lengths == 100)
    outputs, _ = Empirical(path=str(path), column="output", max=100).sample(10_000, rng())
    assert abs(np.mean(outputs == 8) - 0.75) < 4 * 0.5 / 100
    tokens = TokenLengths(prompt=law)
    assert tokens.files == (str(path),)
    assert TokenLengths().files == ()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "give either values or path"),
        ({"values": [1], "path": "x.csv"}, "give either values or path"),
        ({"values": []}, "values"),
        ({"values": [-1]}, "values"),
        ({"values": [1, 2], "weights": [1]}, "weights: 1 of them for 2 values"),
        ({"values": [1, 2], "weights": [0, 0]}, "weights: at least one must be above 0"),
        ({"path": "x.csv", "weights": [1]}, "weights: 1 of them for 0 values"),
        ({"values": [1], "min": 11}, r"min \(11\) must not exceed max \(10\)"),
    ],
)
def test_bad_empirical_is_refused(keys, said):
    with pytest.raises(ValidationError, match=said):
        TypeAdapter(Length).validate_python({"law": "empirical", "max": 10, **keys})
