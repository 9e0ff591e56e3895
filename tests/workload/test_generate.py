"""The arrivals of a block: streams, bytes, facts and errors."""

import json
import subprocess
import sys

import numpy as np
import pytest

from safesync.tables.arrivals import ARRIVALS, arrivals_sha256
from safesync.workload.families import GammaRenewal, Mmpp2, Periodic
from safesync.workload.generate import generate
from safesync.workload.streams import stream
from safesync.workload.tokens import Fixed, Lognormal, TokenLengths

LENGTHS = TokenLengths(
    prompt=Lognormal(median=60, sigma=0.8, min=16, max=128), output=Fixed(tokens=16)
)


def block(family=None, tokens=LENGTHS, horizon_s=100.0, regime="bursty", seed=1):
    return generate(family or Periodic(), tokens, horizon_s, regime, seed)


@pytest.mark.parametrize(
    ("family", "sha256"),
    [
        (Periodic(), "cada9a909127606cae5cfdd4d1431d9d404bd8fe5ceeac9396f8dbe09b5b5353"),
        (Mmpp2(), "e363d3f2760f98989f5f30d93e7d99fffd85e000de4d3d692453cb8bcd0bd96c"),
    ],
)
def test_bytes_of_the_rows_are_pinned(family, sha256):
    rows, facts = block(family)
    assert facts["arrivals_sha256"] == sha256
    assert arrivals_sha256(rows) == sha256


def test_rows_fit_the_table_and_facts_survive_the_file(tmp_path):
    rows, facts = block()
    path = tmp_path / "part.parquet"
    ARRIVALS.write(path, rows, facts)
    read, read_facts = ARRIVALS.read_with_metadata(path)
    assert arrivals_sha256(read) == facts["arrivals_sha256"]
    assert read_facts == facts == json.loads(json.dumps(facts))
    assert read["request_id"].tolist() == list(range(len(read)))
    assert read["arrival_s"].is_monotonic_increasing


def test_facts_say_what_was_drawn():
    rows, facts = block(seed=7)
    assert facts["family"] == Periodic().model_dump()
    assert (facts["regime"], facts["seed"], facts["span_s"]) == ("bursty", 7, 100.0)
    assert facts["scaling"] == "none"
    assert facts["trace"] is None
    at_bound = rows["prompt_tokens"].isin([16, 128]).sum()
    assert 0 < facts["clipped_prompts"] <= at_bound
    assert facts["clipped_outputs"] == 0
    edges, rates = facts["intensity"]["edges_s"], facts["intensity"]["rates_rps"]
    assert len(edges) == len(rates) + 1
    assert set(rates) == {1.0, 4.0}


def test_each_key_has_a_stream_of_its_own():
    base = block()[0]["arrival_s"].to_numpy()
    for other in (block(seed=2), block(regime="pressure")):
        assert not np.isin(base, other[0]["arrival_s"]).any()
    # lengths draw from other streams: another law of lengths leaves the arrivals as they are
    np.testing.assert_array_equal(base, block(tokens=TokenLengths())[0]["arrival_s"])
    # a longer prompt law leaves outputs as they are
    both = TokenLengths(prompt=LENGTHS.prompt, output=LENGTHS.prompt)
    rows = block(tokens=both)[0]
    assert abs(np.corrcoef(rows["prompt_tokens"], rows["output_tokens"])[0, 1]) < 0.3


def test_streams_of_neighbouring_seeds_are_uncorrelated():
    draws = np.stack([stream("arrivals", "r", seed).random(4_000) for seed in range(40)])
    correlations = np.corrcoef(draws)[np.triu_indices(40, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(4_000)
    assert abs(correlations.mean()) < 4 / np.sqrt(4_000 * correlations.size)


def test_streams_tell_keys_apart_that_read_alike():
    keys = [("a", "b"), ("ab",), ("a", 1), ("a", "1"), ("a", 11), ("a", 1, 1)]
    assert len({stream(*key).random() for key in keys}) == len(keys)


def test_zero_arrivals_is_one_sentence_that_says_what_to_raise():
    with pytest.raises(ValueError, match="no request") as error:
        block(Mmpp2(rates_rps=(0.0, 1e-9)), regime="calm", seed=3)
    message = str(error.value)
    assert "'calm'" in message
    assert "seed 3" in message
    assert "'mmpp2'" in message
    assert "raise rates_rps" in message
    assert "\n" not in message


def test_horizon_must_be_positive():
    with pytest.raises(ValueError, match="horizon_s"):
        block(horizon_s=0.0)


def test_what_a_config_names_loads_without_pandas():
    code = (
        "import sys, safesync.workload.source, safesync.workload.tokens\n"
        "sys.exit('pandas' in sys.modules or 'pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_family_without_a_rate_path_says_so():
    rows, facts = block(GammaRenewal())
    assert facts["intensity"] is None
    assert len(rows) > 0
    with pytest.raises(ValueError, match="raise rate_rps"):
        block(GammaRenewal(rate_rps=1e-9))
