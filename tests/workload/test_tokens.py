"""Token lengths: fixed, and lognormal with clipping counted."""

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from safesync.workload.tokens import Fixed, Length, Lognormal, TokenLengths


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
