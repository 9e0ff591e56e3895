"""Which stretch of a trace is replayed is chosen, not assumed (docs/load-generator.md 25)."""

import pytest

from safesync.workload.generate import generate
from safesync.workload.tokens import TokenLengths
from safesync.workload.trace import Trace


@pytest.fixture
def ramping(tmp_path):
    """100 s at 0.1 requests per second (prompts of 1 token), then 100 s at 2 (prompts of 2)."""
    opening = [(10.0 * k, 1) for k in range(10)]
    rest = [(100.0 + 0.5 * k, 2) for k in range(200)]
    rows = "".join(f"{at_s},{tokens},7\n" for at_s, tokens in [*opening, *rest, (200.0, 2)])
    path = tmp_path / "ramp.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)
    return str(path)


def replayed(trace):
    rows, facts = generate(trace, TokenLengths(), 10.0, "bursty", 1, seeds=(1,), context_tokens=16)
    return rows, facts["trace"]


def test_case_25_an_opening_ramp_is_left_out_by_the_window(ramping):
    rows, facts = replayed(Trace(path=ramping, window_start_s=100, window_s=100))
    assert (facts["window_requests"], facts["window_rps"]) == (200, 2.0)
    assert set(rows["prompt_tokens"]) == {2}
    assert len(rows) == 20


def test_case_25_no_window_is_the_whole_trace_and_says_so(ramping):
    """Taken for the whole, the opening's rate would be 0.1 requests per second."""
    facts = replayed(Trace(path=ramping))[1]
    assert (facts["window_start_s"], facts["window_s"]) == (0.0, 200.0)
    assert (facts["window_requests"], facts["window_rps"]) == (211, 1.055)
