"""The emulated tier on the page: beside the others, never among them, with how far it is off."""

import json
import re

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from report.emulated import (
    POINTS_OFF,
    agreement_document,
    agreement_rows,
    calibrated_study,
    emulated_regime,
    transfer_facts,
)
from report.synthetic import page, study

from safesync.report.emulated import errors
from safesync.report.figures.agreement import agreement_figure
from safesync.report.figures.base import Colours
from safesync.report.figures.transfer import transfer_figure

POLICIES = ["wa_forecast", "wa_diloco", "fixed_h_256", "nosync", "matched_random"]


def agreement_of(rows):
    return agreement_figure(rows, POLICIES, Colours(POLICIES[:3]))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "index.html"
    both = calibrated_study(blocks=2, draws=3)
    verdict = page(
        path,
        both,
        study(blocks=1, draws=3, regime="steady"),
        claims=["wa_forecast", "wa_diloco"],
        judged={
            "emulated": [
                emulated_regime("bursty", warnings=["seed 41: 3.1 requests/s at peak"]),
                emulated_regime(
                    "steady", calibrated=False, why="no window met a request.", agreement=None
                ),
            ]
        },
        agreement=agreement_rows(both[1]),
        transfers={"bursty": transfer_facts("bursty"), "steady": transfer_facts("steady")},
    )
    return path.read_text(encoding="utf-8"), verdict


def verdicts_by_tier(text: str) -> dict[str, str]:
    """Return title -> what stands under it up to the next title, in the section of verdicts."""
    section = text[text.index('<section id="verdicts"') : text.index('<section id="regime-1"')]
    parts = re.split(r"<h3>(.*?)</h3>", section)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_tiers_stand_apart_strongest_first(built):
    text, verdict = built
    parts = verdicts_by_tier(text)
    assert list(parts)[:2] == ["On real vLLM sidecars", "On the emulator"]
    for title, tier, shown in (
        ("On real vLLM sidecars", "vllm", "real vLLM"),
        ("On the emulator", "emulator", "emulator"),
    ):
        cells = re.findall(r'<td data-label="Tier">(.*?)</td>', parts[title])
        assert cells == [shown] * sum(r["tier"] == tier for r in verdict["verdicts"])
        assert len(cells) >= 2


def test_every_emulated_claim_has_its_agreement_beside_it(built):
    text, verdict = built
    parts = verdicts_by_tier(text)
    claims = sum(result["tier"] == "emulator" for result in verdict["verdicts"])
    assert parts["On the emulator"].count('<dl class="accuracy">') == claims == 2
    assert "+2.50 points (90 % interval +1.50 to +3.50)" in parts["On the emulator"]
    assert 'class="accuracy"' not in parts["On real vLLM sidecars"]
    # off by 2.5 points where 1 counts
    assert parts["On the emulator"].count("do not take a gain on this tier for a size") == 2


def test_a_regime_without_a_model_says_why(built):
    text, _ = built
    said = "There is no emulated tier in steady: no window met a request."
    assert said in verdicts_by_tier(text)["On the emulator"]
    assert said in text[text.index('id="emulator-2"') :]
    assert "seed 41: 3.1 requests/s at peak" in text


def test_a_claim_that_no_real_replay_checks_says_so(tmp_path):
    page(
        tmp_path / "index.html",
        calibrated_study(blocks=1, draws=3),
        claims=["wa_forecast"],
        judged={"emulated": [emulated_regime("bursty", agreement=None)]},
    )
    emulator = verdicts_by_tier((tmp_path / "index.html").read_text(encoding="utf-8"))
    said = emulator["On the emulator"]
    assert "No real replay of this run shows how far the emulator is off." in said
    assert 'class="accuracy"' not in said


def test_a_run_without_the_tier_does_not_speak_of_it(tmp_path):
    page(tmp_path / "index.html", study(blocks=1, draws=3), claims=["wa_forecast"])
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "On the emulator" not in text
    assert 'id="emulator-1"' not in text


def test_the_split_of_an_emulated_effect_is_a_variant_with_its_caveat(built):
    text, _ = built
    begin = text.index('id="figure-1-decomposition"')
    figure = text[begin : text.index("</figure>", begin)]
    assert re.findall(r"<span>(\w+)</span></label>", figure) == ["vllm", "emulator"]
    assert "emulator: Against 24 real replays the violation rate is off by +2.5 points" in figure


def test_errors_are_signed():
    assert dict(errors(agreement_document())) == {
        "violation rate": "+2.50 points (90 % interval +1.50 to +3.50)",
        "e2e p50": "+1 % (1.01 s for 1 s)",
        "e2e p95": "+20 % (2.4 s for 2 s)",
        "e2e p99": "\u221210 % (2.7 s for 3 s)",
        "TTFT p50": "0 % (0.299 s for 0.3 s)",
        "TTFT p95": "\u221210 % (0.45 s for 0.5 s)",
        "TTFT p99": "too few requests",
    }
    one = agreement_document(error_points=-0.4, low_points=None, high_points=None)
    assert dict(errors(one))["violation rate"] == "\u22120.40 points"
    assert errors(None) == []


def test_a_mark_per_replay_off_the_diagonal_by_its_error():
    rows = agreement_rows(study(blocks=2, draws=3)[1])
    figure = agreement_of(rows)
    assert [variant.label for variant in figure.variants] == ["violation rate", "e2e p95"]
    rates, latencies = (variant.data for variant in figure.variants)
    marks = [trace for trace in rates if trace["mode"] == "markers"]
    assert [trace["name"] for trace in marks] == POLICIES
    assert sum(len(trace["x"]) for trace in marks) == (rows["figure"] == "violation_rate").sum()
    for trace in marks:
        assert np.subtract(trace["y"], trace["x"]) == pytest.approx(POINTS_OFF, abs=2e-3)
    for trace in latencies[1:]:
        assert np.divide(trace["y"], trace["x"]) == pytest.approx(1.2, abs=2e-3)
    assert rates[0]["x"] == rates[0]["y"]
    for variant in figure.variants:
        assert variant.layout["xaxis"]["range"] == variant.layout["yaxis"]["range"]
    assert "of 14 real replays: emulated less measured is +2.50 on average" in figure.alt


def test_one_wrong_replay_is_seen_in_the_words_too():
    rows = agreement_rows(study(blocks=2, draws=3)[1])
    rate = rows.index[rows["figure"] == "violation_rate"][0]
    rows.loc[rate, "emulated"] += 0.5
    rows.loc[rate, "error"] += 0.5
    assert "+2.50 to +52.50" in agreement_of(rows).alt


def test_an_invalid_replay_is_left_out_and_the_figure_says_so(tmp_path):
    replays, scores, threshold = study(blocks=2, draws=3)
    wrong = (scores["policy"] == "matched_random") & (scores["seed"] == 23) & (scores["draw"] == 1)
    assert wrong.sum() == 1
    scores.loc[wrong, ["valid", "invalid_reason"]] = [False, "planted fault"]
    path = tmp_path / "index.html"
    page(
        path,
        (replays, scores, threshold),
        claims=["wa_forecast"],
        judged={"emulated": [emulated_regime("bursty")]},
        agreement=agreement_rows(scores),
    )
    text = path.read_text(encoding="utf-8")
    begin = text.index('id="figure-1-agreement"')
    figure = text[begin : text.index("</figure>", begin)]
    assert "1 replay is left out" in figure
    assert "of 13 real replays" in figure
    assert "matched_random_4 draw 1, seed 23" not in figure
    assert "matched_random_4 draw 1, seed 24" in figure


def test_no_replay_no_plot():
    assert agreement_of(agreement_rows(study(blocks=1)[1]).head(0)) is None


def test_a_replay_that_lost_every_request_has_a_rate_alone():
    rows = agreement_rows(study(blocks=1, draws=1)[1])
    alone = rows[rows["figure"] == "violation_rate"]
    assert [variant.label for variant in agreement_of(alone).variants] == ["violation rate"]


def test_transfer_draws_both_effects_and_the_limit():
    figure = transfer_figure(transfer_facts("bursty"), 0.15)
    data = figure.variants[0].data
    marks = {trace["name"]: trace["x"] for trace in data if trace["mode"] == "markers"}
    assert marks == {"measured": [1.6, 2.0], "emulated": [1.5, 2.2]}
    lows = [trace["x"] for trace in data if trace["name"] == "lower end"]
    assert lows == [[1.3, 1.6], [1.5, 2.0]]
    tolerated = [trace["x"] for trace in data if trace["name"].startswith("tolerance")]
    assert tolerated == [[1.36, 1.84], [1.7, 2.3]]
    (line,) = figure.variants[0].layout["shapes"]
    assert line["x0"] == line["x1"] == 1.1
    assert figure.alt == (
        "mean slowdown of exposed requests: measured 1.60, lower end 1.30, emulated 1.50; ratio of "
        "their p95 latencies: measured 2.00, lower end 1.50, emulated 2.20; limit 1.10; 24 merge "
        "windows met requests."
    )


def test_transfer_without_a_model_or_without_windows():
    figure = transfer_figure(transfer_facts("bursty", predicted=None), 0.15)
    assert figure.notes == ["There is no emulated effect: the model is not calibrated."]
    assert "not emulated" in figure.alt
    assert {trace["name"] for trace in figure.variants[0].data} == {
        "lower end",
        "measured",
    }
    few = transfer_facts("bursty", windows=3, low=None, observed=None, predicted=None)
    assert transfer_figure(few, 0.15) is None


@pytest.mark.parametrize("name", ["agreement", "transfer"])
def test_figures_are_valid_plotly_in_known_colours(built, name):
    text, _ = built
    style = text[text.index("<style>") : text.index("</style>")]
    found = re.search(rf'id="figure-1-{name}-data">(.*?)</script>', text, re.S)[1]
    for token in set(re.findall(r'"@([a-z0-9]+)(?:/[0-9.]+)?"', found)):
        assert style.count(f"--{token}:") == 2, token
    for variant in json.loads(re.sub(r'"@[a-z0-9/.]+"', '"#123456"', found)):
        go.Figure(data=variant["data"], layout=variant["layout"])


def test_policy_names_are_escaped():
    rows = agreement_rows(study(blocks=1, draws=1, policy="<b>x</b>")[1])
    figure = agreement_figure(pd.DataFrame(rows), ["<b>x</b>"], Colours(["<b>x</b>"]))
    assert "<b>" not in json.dumps(figure.specs)
