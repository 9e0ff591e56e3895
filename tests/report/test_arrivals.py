"""Where arrivals come from, in words, from the facts that the workload really writes."""

import pytest

from safesync.report.arrivals import PUBLISHED, origin
from safesync.workload.families import Diurnal, Mmpp2, Poisson
from safesync.workload.generate import generate
from safesync.workload.importers.reading import FORMATS
from safesync.workload.tokens import TokenLengths
from safesync.workload.trace import Trace

TOKENS = TokenLengths(
    prompt={"law": "lognormal", "median": 64, "sigma": 0.5, "min": 8, "max": 100},
    output={"law": "fixed", "tokens": 32},
)


def facts(source, *, seeds=(1, 2), horizon_s=100.0, context_tokens=64):
    found = []
    for seed in reversed(seeds):
        rows, about = generate(
            source, TOKENS, horizon_s, "mine", seed, seeds=seeds, context_tokens=context_tokens
        )
        found.append(about | {"requests": len(rows)})
    return found


@pytest.fixture
def path(tmp_path):
    """A trace of one request per second over 500 s, at stamps of 2 s, some with long prompts."""
    file = tmp_path / "folder" / "mine.csv"
    file.parent.mkdir()
    rows = [f"{k // 2 * 2},{90 if k % 5 == 0 else 20},10" for k in range(500)]
    file.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows, ""]))
    return file


def test_a_family_shows_its_parameters_with_units():
    found = origin(facts(Mmpp2(rates_rps=(1.0, 6.0), mean_sojourn_s=(20.0, 10.0))))
    assert found.lead.startswith("Simulated, family mmpp2. Poisson arrivals whose rate follows")
    assert found.parameters == [
        ("rates_rps", "1, 6", "Arrival rate in each state, requests/s"),
        ("mean_sojourn_s", "20, 10", "Mean length of a stay in each state, s"),
    ]
    assert found.facts == [
        "Prompts: lognormal, median 64 tokens, sigma 0.5, cut to 8\u2013100 tokens. "
        "Answers: 32 tokens each."
    ]
    assert [block["seed"] for block in found.blocks] == [1, 2]
    first = found.blocks[0]
    assert first["rate_rps"] == first["requests"] / 100
    assert first["clipped_prompts"] > 0
    assert first["slice"] is None


def test_a_family_inside_another_is_shown_with_its_own():
    found = origin(facts(Diurnal(inner=Poisson(rate_rps=3.0), profile=(1.0, 2.0), start_s=None)))
    names = [(name, value) for name, value, _ in found.parameters]
    assert names == [
        ("inner", "poisson"),
        ("inner.rate_rps", "3"),
        ("period_s", "86400"),
        ("profile", "1, 2"),
        ("start_s", "drawn per seed"),
    ]


def test_a_thinned_trace_says_all_that_was_done_to_it(path):
    trace = Trace(path=str(path), scaling="thin", target_rps=0.5, spread_s=2.0, window_s=400.0)
    found = origin(facts(trace))
    assert found.lead == (
        "Replayed from a trace: mine.csv, format arrivals_csv (a file of your own; its licence is "
        "not recorded)."
    )
    assert found.parameters == []
    said = " ".join(found.facts)
    assert "The file has 500 rows over 500 s" in said
    assert "0 rows without output tokens" in said
    assert "Window: 0.0 to 400.0 s of the trace, 400 requests, 1 requests/s." in said
    assert "a slice of its own, 100.0 s long: one of 4 in the window, 0 of them" in said
    assert "Thinned to 0.5 requests/s: each request was kept with probability 0.5" in said
    assert "spread uniformly over the 2 s after it" in said
    assert "cut to the sidecar's context of 64 tokens" in said
    assert str(path.parent) not in f"{found.lead} {said}"
    for block in found.blocks:
        start = float(block["slice"]["times"].split()[0])
        assert start % 100 == 0
        assert block["slice"]["requests"] == 100
        assert block["requests"] < 100
        assert block["clipped_prompts"] > 0
    assert len({block["slice"]["times"] for block in found.blocks}) == 2


def test_a_stretched_trace_with_lengths_of_the_config(path):
    trace = Trace(
        path=str(path),
        window_s=498.0,
        scaling="stretch",
        target_rps=0.5,
        slices="overlapping",
        lengths="config",
    )
    said = " ".join(origin(facts(trace)).facts)
    assert "Stretched to 0.5 requests/s: time was multiplied by 2," in said
    assert "50.0 s from a random start, so seeds may share bursts" in said
    assert "Stamps were used as they stand." in said
    assert "Lengths are the config's, not the trace's. Prompts: lognormal" in said


def test_every_format_has_its_publisher_and_licence():
    assert set(PUBLISHED) == set(FORMATS)
    for name in ("azure_2023", "azure_2024", "burstgpt"):
        assert PUBLISHED[name].endswith("CC-BY-4.0")
    assert PUBLISHED["mooncake"].endswith("Apache-2.0")


def test_no_block_has_no_origin():
    assert origin([]) is None
