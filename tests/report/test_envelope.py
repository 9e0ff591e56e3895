"""The envelope: strips for few draws, their distribution for many, the optimum where it ran."""

import json
import re

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from report.emulated import calibrated_study, emulated_regime
from report.synthetic import page

from safesync.report.figures.base import Colours
from safesync.report.figures.envelope import MAX_DRAWS, envelope
from safesync.report.tables import oracles

POLICIES = ["wa", "wa_offline", "even", "nosync", "matched_random"]
BUDGET = 4


def rows_of(blocks: int, draws: int) -> pd.DataFrame:
    """Return rows of blocks in which draw k of seed s has an excess of k + s points."""
    found = []
    for seed in range(blocks):
        own = [("wa", 0, BUDGET, 2.0 + seed), ("wa_offline", 0, BUDGET, 0.5 + seed)]
        own.append(("even", 0, 6, 30.0))
        own += [("matched_random", k, BUDGET, float(k + seed)) for k in range(draws)]
        own += [("matched_random", k, 6, 30.0 + k) for k in range(draws)]
        found += [
            {
                "tier": "emulator",
                "regime": "bursty",
                "seed": seed,
                "policy": policy,
                "control_of": None,
                "draw": draw,
                "budget": budget,
                "excess_rate": points / 100,
            }
            for policy, draw, budget, points in own
        ]
    return pd.DataFrame(found)


def drawn(rows: pd.DataFrame, best=("wa_offline",)):
    return envelope(rows, "emulator", "bursty", POLICIES, Colours(POLICIES[:3]), best)


def of_policy(figure, policy: str) -> list[dict]:
    """Return the traces of a policy: those up to its mark, from the mark before."""
    traces: list[dict] = []
    for trace in figure.variants[0].data:
        traces.append(trace)
        if trace["mode"] == "markers" and trace["marker"]["symbol"] != "circle-open":
            if trace["hovertemplate"].startswith(f"{policy}, "):
                return traces
            traces = []
    raise AssertionError(f"no mark of {policy}")


def test_many_draws_are_the_distribution_of_their_mean_over_blocks():
    draws = MAX_DRAWS + 40
    figure = drawn(rows_of(2, draws))
    area, mean, optimum, mark = of_policy(figure, "wa")
    # draw k has k and k + 1 points in the two blocks: k + 0.5 on average, each k once
    assert (area["x"][0], area["x"][-1]) == (0.5, draws - 0.5)
    low, *heights, last = area["y"]
    assert low == last
    counts = np.histogram(np.arange(draws) + 0.5, 40)[0]
    assert (np.array(heights) - low) / (max(heights) - low) == pytest.approx(
        counts / counts.max(), abs=2e-3
    )
    assert mean["x"] == pytest.approx([draws / 2, draws / 2])
    assert mark["x"] == [2.5]
    # of the draws' means 0.5, 1.5 and 2.5 are as low
    assert f"as low in {3 / draws:.1%} of draws" in mark["hovertemplate"]
    assert optimum["x"] == [1.0, 1.0]
    assert optimum["line"]["dash"] == "dash"
    assert low < mark["y"][0] < max(heights)
    assert any("the mean over 2 blocks" in note for note in figure.notes)


def test_a_policy_of_another_budget_has_no_optimum_on_it():
    for draws in (3, MAX_DRAWS + 1):
        lines = [t for t in of_policy(drawn(rows_of(2, draws)), "even") if t["mode"] == "lines"]
        assert not [trace for trace in lines if trace["line"].get("dash") == "dash"]


def test_few_draws_are_a_strip_per_block_with_the_optimum():
    figure = drawn(rows_of(2, 3))
    circles, mean, optimum, mark = of_policy(figure, "wa")
    assert circles["x"] == [0, 1, 2]
    assert mean["x"] == [1, 1]
    assert optimum["x"] == [0.5, 0.5]
    assert mark["x"] == [2]
    assert not any("distribution" in note for note in figure.notes)
    assert sum(note.startswith("Dashed: the optimum") for note in figure.notes) == 1


def test_without_an_oracle_nothing_is_called_an_optimum():
    for draws in (3, MAX_DRAWS + 1):
        figure = drawn(rows_of(2, draws), best=())
        assert not [note for note in figure.notes if "optimum" in note]
        assert "optimum" not in json.dumps(figure.specs)


def test_the_words_hold_each_policy_and_its_draws():
    assert drawn(rows_of(2, 3)).alt == (
        "Excess violation rates, mean over blocks: wa +2.50 points, its draws +1.50; "
        "wa_offline +1.00 points, its draws +1.50; even +30.00 points, its draws +31.00."
    )


def test_rows_do_not_meet():
    figure = drawn(rows_of(2, MAX_DRAWS + 1))
    feet = [t["y"][0] for t in figure.variants[0].data if t.get("fill") == "toself"]
    tops = [max(t["y"]) for t in figure.variants[0].data if t.get("fill") == "toself"]
    labels = [label["y"] for label in figure.variants[0].layout["annotations"]]
    assert len(feet) == len(labels) == 3
    assert all(top < label for top, label in zip(tops, labels, strict=True))
    text = 14 / 26  # a label's height, in rows
    assert all(label + text < foot for label, foot in zip(labels[1:], feet[:-1], strict=True))


def test_it_is_valid_plotly():
    for draws in (0, 3, MAX_DRAWS + 1):
        for variant in drawn(rows_of(2, draws)).variants:
            spec = json.dumps({"data": variant.data, "layout": variant.layout})
            spec = spec.replace("@control/0.25", "#123456")
            for token in ("@control", "@ink", "@surface", "@muted", "@line", "@accent", "@raised"):
                spec = spec.replace(f'"{token}"', '"#123456"')
            for place in (1, 2, 3):
                spec = spec.replace(f'"@c{place}"', '"#123456"')
            go.Figure(**json.loads(spec))


def test_an_oracle_is_optimal_in_every_block_or_is_none():
    rows = pd.DataFrame(
        {
            "policy": ["best", "best", "luck", "luck", "missed", "missed"],
            "method": ["wa_offline", "wa_offline", "wa", "wa", "wa_offline", "wa_offline"],
            "regret": [0, 0, 0, 0, 0, 1],
        }
    )
    assert oracles(rows) == {"best"}
    assert oracles(rows.head(0)) == set()


def test_the_emulated_tier_is_a_choice_of_its_own(tmp_path):
    path = tmp_path / "index.html"
    replays, scores, threshold = calibrated_study(blocks=2, draws=3)
    page(
        path,
        (replays, scores, threshold),
        claims=["wa_forecast"],
        judged={"emulated": [emulated_regime("bursty")]},
    )
    text = path.read_text(encoding="utf-8")
    begin = text.index('id="figure-1-envelope"')
    figure = text[begin : text.index("</figure>", begin)]
    assert re.findall(r"<span>(\w+)</span></label>", figure) == ["vllm", "emulator"]
    spec = re.search(r'id="figure-1-envelope-data">(.*?)</script>', figure, re.S)[1]
    marks = [
        [t["x"] for t in variant["data"] if t.get("hovertemplate", "").startswith("wa_forecast, ")]
        for variant in json.loads(spec)
    ]
    own = scores[(scores["policy"] == "wa_forecast") & (scores["role"] == "judge")]
    for tier, found in zip(("vllm", "emulator"), marks, strict=True):
        rates = own.loc[own["tier"] == tier, "excess_rate"]
        assert [x for (x,) in found] == pytest.approx(list(100 * rates), abs=1e-3)
