"""The overlap tier on the page: its table, the exact nulls, regret against forecast error."""

import json
import re

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from protocol.planted_overlap import overlap_study
from report.synthetic import HORIZON_S, PLAN, study

from safesync.protocol.verdict import judge
from safesync.report.figures.base import Colours
from safesync.report.figures.forecast import forecast_figure, regret_share
from safesync.report.figures.null import null_figure
from safesync.report.page import build
from safesync.report.tables import alike_policies, inert_signals, overlap_rows

POLICIES = ["oracle", "blind", "even", "fixed_h_12", "seeker"]


@pytest.fixture(scope="module")
def overlap():
    return overlap_study(blocks=3)


def with_errors(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with `oracle` and `blind` as one method at two forecast errors."""
    error = rows["policy"].map({"oracle": 0.0, "blind": 2.0})
    return rows.assign(forecast_error=error, method=rows["policy"].where(error.isna(), "horizon"))


def page(path, rows: pd.DataFrame, claims) -> tuple[str, dict]:
    replays, scores, threshold = study(blocks=1, draws=3)
    verdict = judge(
        scores,
        {},
        claims,
        thresholds_s={"bursty": threshold["threshold_s"]},
        horizon_s=HORIZON_S,
        replay_s=100,
        baselines=["fixed_h_12"],
        overlap=rows,
    )
    build(
        path,
        verdict=verdict,
        scores=scores,
        replays=replays,
        thresholds={"bursty": threshold},
        merges={"bursty": PLAN},
        horizon_s=HORIZON_S,
        config_text="",
        overlap=rows,
    )
    return path.read_text(encoding="utf-8"), verdict


def figures(text: str) -> dict[str, list[dict]]:
    found = re.findall(
        r'<script type="application/json" id="figure-1-(.*?)-data">(.*?)</script>', text, re.S
    )
    return {name: json.loads(spec) for name, spec in found}


def test_page_shows_every_policy_on_the_overlap_tier(overlap, tmp_path):
    text, verdict = page(tmp_path / "index.html", with_errors(overlap), ["oracle", "wa_forecast"])
    assert ">overlap, exact<" in text
    begin = text.index("Overlap tier: exact")
    table = text[begin : text.index("</table>", begin)]
    assert table.count("<tr><th") == 1 + len(overlap)
    for row in overlap.itertuples():
        cells = f"<td>{row.overlap}</td><td>{row.null_mean:.1f} ± {row.null_sd:.1f}</td>"
        assert cells + f"<td>{row.optimum}</td><td>{row.regret}</td>" in table
    assert "seed 0: network, checkpoint" in text
    assert "– not applicable" in text
    drawn = figures(text)
    assert {"null", "forecast", "overlap-decomposition"} <= set(drawn)
    style = text[text.index("<style>") : text.index("</style>")]
    for name in ("null", "forecast", "overlap-decomposition"):
        spec = json.dumps(drawn[name])
        for token in set(re.findall(r'"@([a-z0-9]+)(?:/[0-9.]+)?"', spec)):
            assert style.count(f"--{token}:") == 2, token
        for variant in json.loads(re.sub(r'"@[a-z0-9/.]+"', '"#123456"', spec)):
            go.Figure(data=variant["data"], layout=variant["layout"])
    assert "overlapped requests, % of all" in json.dumps(drawn["overlap-decomposition"])
    parts = [r["decomposition"] for r in verdict["verdicts"] if r["tier"] == "overlap"]
    assert parts[0][0]["baseline"] == "fixed_h_12"


def test_a_run_without_the_tier_has_no_such_section(overlap, tmp_path):
    text, _ = page(tmp_path / "index.html", overlap.head(0), ["wa_forecast"])
    assert "Overlap tier: exact" not in text
    assert not {"null", "forecast", "overlap-decomposition"} & set(figures(text))


def test_null_figure_draws_the_exact_distribution(overlap):
    figure = null_figure(overlap, POLICIES, Colours(POLICIES))
    assert [variant.label for variant in figure.variants] == ["seed 0", "seed 1", "seed 2"]
    here = overlap[overlap["seed"] == 0]
    data = figure.variants[0].data
    areas = [trace for trace in data if trace.get("fill") == "toself"]
    assert len(areas) == here["budget"].nunique()
    row = here[here["budget"] == 8].iloc[0]
    foot, *heights, _ = areas[0]["y"]
    seen = row["null_probabilities"] >= 1e-6
    expected = row["null_probabilities"][seen] / row["null_probabilities"].max()
    assert areas[0]["x"][1:-1] == row["null_values"][seen].tolist()
    above = (np.array(heights) - foot) / (max(heights) - foot)
    assert above == pytest.approx(expected, abs=2e-3)
    marks = {trace["text"][0].strip(): trace["x"][0] for trace in data if "text" in trace}
    assert marks == dict(zip(here["policy"], here["overlap"], strict=True))
    bounds = {trace["x"][0] for trace in data if trace.get("line", {}).get("dash") == "dash"}
    assert bounds == set(here["optimum"])


def test_names_never_meet_however_many_policies_share_a_budget(overlap):
    row = overlap[(overlap["seed"] == 0) & (overlap["budget"] == 8)].head(1)
    rows = pd.concat([row.assign(policy=f"policy_{k}") for k in range(20)], ignore_index=True)
    figure = null_figure(rows, list(rows["policy"]), Colours(rows["policy"]))
    (variant,) = figure.variants
    named = [trace for trace in variant.data if "text" in trace]
    at = sorted(trace["y"][0] for trace in named)
    assert len(named) == 20
    assert min(np.diff(at)) >= 19  # pixels, of text that is 12 high
    area = next(trace for trace in variant.data if trace.get("fill") == "toself")
    assert max(at) < min(area["y"])
    bottom, top = variant.layout["yaxis"]["range"]
    assert bottom < min(at)
    assert variant.layout["height"] > top - bottom


def test_names_stand_on_the_side_with_room(overlap):
    figure = null_figure(overlap, POLICIES, Colours(POLICIES))
    for variant in figure.variants:
        low, high = variant.layout["xaxis"]["range"]
        for trace in variant.data:
            if "text" in trace:
                left_half = trace["x"][0] <= (low + high) / 2
                assert trace["textposition"] == f"middle {'right' if left_half else 'left'}"


def test_regret_runs_from_the_oracle_to_chance(overlap):
    rows = with_errors(overlap)
    shares = regret_share(rows)
    assert (shares[rows["policy"] == "oracle"] == 0).all()
    as_chance = rows.assign(regret=rows["null_mean"] - rows["optimum"])
    assert regret_share(as_chance) == pytest.approx(1)
    pinned = rows.head(1).assign(null_mean=5.0, optimum=5, regret=0)
    assert np.isnan(regret_share(pinned)).all()
    figure = forecast_figure(rows, POLICIES, Colours(POLICIES))
    lines = {trace["name"]: trace for trace in figure.variants[0].data if "name" in trace}
    assert list(lines) == ["horizon", "oracle: the optimum", "matched random"]
    blind = shares[rows["policy"] == "blind"].mean()
    assert lines["horizon"]["x"] == [0, 2]
    assert lines["horizon"]["y"] == pytest.approx([0, blind], abs=1e-3)
    assert [lines[name]["y"] for name in list(lines)[1:]] == [[0, 0], [1, 1]]


def test_one_forecast_error_alone_draws_nothing(overlap):
    assert forecast_figure(overlap, POLICIES, Colours(POLICIES)) is None
    one = with_errors(overlap[overlap["policy"] == "oracle"])
    assert forecast_figure(one, POLICIES, Colours(POLICIES)) is None


def test_rows_are_in_the_order_of_the_page_and_name_inert_signals(overlap):
    rows = overlap_rows(overlap, POLICIES)
    assert [row["policy"] for row in rows[::3]] == POLICIES
    assert [row["seed"] for row in rows[:3]] == [0, 1, 2]
    even = next(row for row in rows if row["policy"] == "even")
    assert even["spacing_mean"] == even["overlap"]
    assert inert_signals(overlap)[0] == {"seed": 0, "inert_signals": "network, checkpoint"}
    assert len(inert_signals(overlap)) == 3


def test_a_single_merge_is_named_in_the_singular(overlap):
    rows = overlap.assign(budget=1)
    spec = json.dumps([v.layout for v in null_figure(rows, POLICIES, Colours(POLICIES)).variants])
    assert "<b>1 merge</b>" in spec


def test_policies_that_come_out_alike_in_every_block_are_named_together(overlap):
    assert alike_policies(overlap, POLICIES) == []
    twin = overlap[overlap["policy"] == "even"].assign(policy="twin")
    near = overlap[overlap["policy"] == "even"].assign(policy="near")
    near.loc[near["seed"] == 2, "overlap"] += 1
    both = pd.concat([overlap, near, twin], ignore_index=True)
    assert alike_policies(both, [*POLICIES, "near", "twin", "absent"]) == [["even", "twin"]]
