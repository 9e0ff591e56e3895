"""Measured spacing on the page: a control under a name of its own for each policy, no policy."""

import json
import re

import pytest
from report.emulated import agreement_rows, emulated_regime
from report.synthetic import page, study

from safesync.report.figures.base import Colours, order
from safesync.report.figures.timeline import timeline
from safesync.report.figures.windows import windows_figure
from safesync.report.replay import captures

POLICIES = ["wa_forecast", "wa_diloco", "fixed_h_256"]
ORDERS = ["matched_spacing_wa_diloco", "matched_spacing_wa_forecast"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Two claims with two other orders per block, one of wa_diloco's invalid."""
    replays, scores, threshold = study(blocks=2, draws=2, spacing=2)
    wrong = scores["control_of"].eq("wa_diloco") & scores["seed"].eq(23) & scores["draw"].eq(1)
    assert wrong.sum() == 1
    scores.loc[wrong, ["valid", "invalid_reason"]] = [False, "planted fault"]
    path = tmp_path_factory.mktemp("page") / "index.html"
    verdict = page(
        path,
        (replays, scores, threshold),
        claims=["wa_forecast", "wa_diloco"],
        judged={"emulated": [emulated_regime("bursty")]},
        agreement=agreement_rows(scores),
    )
    return path.read_text(encoding="utf-8"), verdict


def figure(text: str, name: str) -> tuple[str, list[dict]]:
    """Return the markup of a figure and the traces of its first variant."""
    begin = text.index(f'id="figure-1-{name}"')
    data = re.search(rf'id="figure-1-{name}-data">(.*?)</script>', text, re.S)[1]
    return text[begin : text.index("</figure>", begin)], json.loads(data)[0]["data"]


def test_only_the_claim_whose_order_is_invalid_is_refused(built):
    _, verdict = built
    words = {result["policy"]: result["verdict"] for result in verdict["verdicts"]}
    assert words["wa_diloco"] == "REFUSED"
    assert words["wa_forecast"] != "REFUSED"
    gates = {gate["name"]: gate for gate in verdict["verdicts"][0]["gates"]}
    assert gates["matched spacing"]["applies"] is True
    described = {result["policy"] for result in verdict["described"]}
    assert described == {"fixed_h_256"}


def test_every_replay_says_whose_gaps_it_has(built):
    text, _ = built
    table = text[text.index('id="replays-1"') :]
    rows = re.findall(r'<tr><th scope="row">(.*?)</th><td>(\d+)</td><td>(\d+)</td>', table)
    found = [row for row in rows if row[0].startswith("matched_spacing")]
    assert found == [(name, d, s) for name in ORDERS for s in ("23", "24") for d in ("0", "1")]
    assert "matched_spacing_wa_diloco draw 1, seed 23" in text
    assert "matched_spacing_<em>policy</em>: the policy's own gaps in other orders." in table
    names = list(dict.fromkeys(row[0] for row in rows))
    assert names == [
        "wa_forecast",
        "wa_diloco",
        "fixed_h_256",
        "matched_random",
        *ORDERS,
        "nosync",
        "probe",
    ]


def test_the_one_invalid_replay_is_left_out_of_the_figures(built):
    text, _ = built
    markup, traces = figure(text, "agreement")
    assert "1 replay is left out" in markup
    marks = {trace["name"]: trace for trace in traces if trace["mode"] == "markers"}
    assert {name: len(trace["x"]) for name, trace in marks.items()} == {
        **dict.fromkeys(POLICIES, 2),
        "nosync": 2,
        "matched_random": 4,
        "matched_spacing_wa_diloco": 3,
        "matched_spacing_wa_forecast": 4,
    }
    for name in ORDERS:
        assert marks[name]["marker"]["color"] == "@control"
        assert marks[name]["marker"]["symbol"] == "square-open"
    for name in ("timeline", "windows", "latency"):
        assert "1 replay is left out" in figure(text, name)[0]


def test_the_timeline_lists_their_merges_by_name(built):
    text, _ = built
    for name, draws in zip(ORDERS, (["0"], ["0", "1"]), strict=True):
        assert re.findall(rf"{name} draw (\d), seed 23: \d", text) == draws


def test_the_envelope_knows_policies_alone(built):
    text, _ = built
    markup, traces = figure(text, "envelope")
    assert "matched_spacing" not in markup
    said = {trace["hovertemplate"].partition(",")[0] for trace in traces}
    assert said & {*POLICIES, *ORDERS} == set(POLICIES)


def test_a_control_has_lanes_of_its_own_and_no_policy_loses_its_lane():
    replays, _, _ = study(blocks=1, draws=5, spacing=4)
    judged = [replay for replay in replays if replay.role == "judge"]
    quiet = {seed: replay for (_, _, seed), replay in captures(judged).items()}
    drawn = timeline(
        judged,
        quiet,
        [*POLICIES, "nosync", "matched_random", *ORDERS],
        Colours(POLICIES),
        metric="e2e",
        threshold_s=2.0,
        merge_s=8.0,
        horizon_s=100.0,
    )
    labels = [label["text"] for label in drawn.variants[0].layout["annotations"]]
    assert [label.partition(" \u00b7")[0] for label in labels] == [
        *POLICIES,
        *(f"matched_random draw {draw}" for draw in range(3)),
        *(f"{name} draw {draw}" for name in ORDERS for draw in range(3)),
    ]
    # 2 draws of matched random, one of each spacing
    [note] = [note for note in drawn.notes if "in the table only" in note]
    assert "up to 4 more of its replays" in note


def test_spacing_is_pooled_by_policy_and_comes_after_the_draws():
    replays, _, _ = study(blocks=2, draws=1, spacing=1)
    judged = [replay for replay in replays if replay.role == "judge"]
    groups = [replay.group for replay in order(judged, [*POLICIES, "nosync", "matched_random"])]
    assert list(dict.fromkeys(groups)) == [
        *POLICIES,
        "nosync",
        "matched_random (4 merges)",
        *(f"{name} (4 merges)" for name in ORDERS),
    ]
    quiet = {seed: replay for (_, _, seed), replay in captures(judged).items()}
    facts = {"metric": "e2e", "threshold_s": 2.0, "merge_s": 8.0}
    drawn = windows_figure(judged, quiet, POLICIES, Colours(POLICIES), **facts)
    colours = {trace["name"]: trace["marker"]["color"] for trace in drawn.variants[0].data[:6]}
    assert colours["matched_spacing_wa_forecast (4 merges)"] == "@control"
    assert colours["wa_diloco"] == "@c2"
