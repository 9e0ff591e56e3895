import json
import re
from dataclasses import replace
from html import unescape

import pandas as pd
import plotly.graph_objects as go
import pytest
from report.synthetic import HORIZON_S, PLAN, page, study

from safesync.protocol.published import read_figures
from safesync.protocol.verdict import judge
from safesync.report import tables
from safesync.report.figures.base import Colours
from safesync.report.figures.envelope import envelope
from safesync.report.page import build

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report" / "index.html"
    verdict = page(
        path, study(blocks=2, draws=4), claims=["wa_forecast", "wa_diloco"], warnings=["5 < 6"]
    )
    return path, path.read_text(encoding="utf-8"), verdict


def without_plotly(text: str) -> str:
    """Return the page without its longest script, which is plotly.js."""
    return text.replace(max(re.findall(r"<script>.*?</script>", text, re.S), key=len), "")


def figures(text: str) -> dict[str, list[dict]]:
    found = re.findall(
        r'<script type="application/json" id="(.*?)-data">(.*?)</script>', text, re.S
    )
    return {name: json.loads(spec) for name, spec in found}


def test_says_the_answer_first_and_every_verdict_in_words(built):
    _, text, verdict = built
    assert f"<h1>{verdict['answer']}</h1>" in text
    for result in verdict["verdicts"]:
        assert result["verdict"] in text
        assert result["sentence"] in text
    assert text.index("<h1>") < text.index('id="verdicts"') < text.index('id="regime-1"')
    assert "5 &lt; 6" in text
    assert "Open loop." in text


def test_gates_and_what_would_settle_it_stand_beside_the_verdict(built):
    _, text, verdict = built
    result = verdict["verdicts"][0]
    assert result["verdict"] == "INCONCLUSIVE"
    passed = [gate["name"] for gate in result["gates"] if gate["passed"]]
    unmet = [gate["name"] for gate in result["gates"] if gate["passed"] is False]
    row = text[text.index(result["sentence"]) :]
    row = unescape(row[: row.index("<details>")])
    assert result["settle"]["sentence"] in row
    assert f"✓ {len(passed)} passed" in row
    assert unmet == ["resolution", "envelope"]
    said = "resolution (p cannot fall low enough), envelope (not told from chance)"
    assert f"not met, so not EARNED: {said}" in row
    assert "PROVISIONAL at best: effect-size transfer (" in row
    assert all(f"{name} (" in row for name in result["open_gates"])
    assert "✗ not met: not EARNED" in text
    level = f"{100 * result['gain']['level']:.0f} % interval"
    assert level in text


def test_a_gate_that_refuses_is_told_from_one_that_withholds(tmp_path):
    replays, scores, _ = study(blocks=2, draws=3)
    late = scores["policy"].eq("wa_forecast")
    scores["lateness_p99_s"] = scores["lateness_p99_s"].mask(late, 9.0)
    path = tmp_path / "index.html"
    page(path, (replays, scores, study(blocks=2, draws=3)[2]), claims=["wa_forecast"])
    text = path.read_text(encoding="utf-8")
    assert "✗ failed, so refused: measurement valid" in text
    assert "✗ failed: REFUSED" in text


def test_terms_and_policies_are_explained_before_they_are_used(tmp_path):
    path = tmp_path / "index.html"
    rules = {"wa_forecast": "forecast (limit 2): merge in a lull.", "other": "<b>: waits."}
    page(path, study(blocks=1, draws=3), claims=["wa_forecast"], gaps_s=(8.0, 32.0), rules=rules)
    text = without_plotly(path.read_text(encoding="utf-8"))
    first = text[: text.index('<table class="verdicts">')]
    for term in ("policy", "matched random", "corridor", "block", "capture", "draws", "regime"):
        assert f"<dfn>{term}</dfn>" in first
    assert "(8 to 32 s of training between merges)" in first
    assert "<strong>wa_forecast</strong>: forecast (limit 2): merge in a lull." in first
    assert "&lt;b&gt;: waits." in text


def test_what_was_measured_stands_before_the_verdicts(tmp_path):
    replays, scores, threshold = study(blocks=2, draws=3)
    shared = {"sidecar": [0, 1], "client": [0, 1], "ranks": [0, 1]}
    config = {"model": "tiny", "background": {"training": None}, "merge": {"style": "blocking"}}
    told = [replace(r, manifest={"cores": shared, "config": config}) for r in replays]
    path = tmp_path / "index.html"
    page(path, (told, scores, threshold), claims=["wa_forecast"])
    first = path.read_text(encoding="utf-8")
    first = first[: first.index('id="verdicts"')]
    offered = sorted(len(r.requests) for r in replays if r.policy == "nosync" and r.role == "judge")
    for name, said in (
        (
            "violation",
            f"{threshold['metric']} above {threshold['threshold_s']:.2f} s, or no answer",
        ),
        ("model served", "tiny"),
        ("cores", "2, shared by sidecar, client, ranks"),
        ("a replay", f"{offered[0]} to {offered[-1]} requests in 100 s"),
        ("training between merges", "none here; progress is that of a training run of its own"),
    ):
        assert f"<dt>{name}</dt><dd>{said}</dd>" in first
    apart = tables.setting(
        [replace(told[0], manifest={"cores": {"sidecar": [0, 1, 2], "client": [3]}})], HORIZON_S
    )
    assert ("cores", "sidecar 3, client 1") in apart
    assert [name for name, _ in apart] == ["cores"]


def test_the_noise_of_one_replay_is_told_or_said_to_be_unknown(built, tmp_path):
    _, text, _ = built
    assert "No schedule was measured twice" in text
    replays, scores, threshold = study(blocks=2, draws=3)
    again = scores[scores["policy"] == "wa_forecast"]
    again = again.assign(draw=1, violation_rate=again["violation_rate"] + 0.02)
    scores = pd.concat([scores, again], ignore_index=True)
    path = tmp_path / "index.html"
    page(path, (replays, scores, threshold), claims=["wa_forecast"])
    text = path.read_text(encoding="utf-8")
    assert "No schedule was measured twice" not in text
    # two runs 2 points apart: an SD of the square root of 2
    assert "The same schedule measured again scatters by 1.41 points" in text


def test_warnings_of_the_emulated_tier_stand_beside_its_verdict(tmp_path):
    replays, scores, threshold = study(blocks=2, draws=3)
    scores = pd.concat([scores, scores.assign(tier="emulator")], ignore_index=True)
    warning = "Seed 1: busier than what was calibrated."
    found = {"regime": "bursty", "calibrated": True, "why": None, "warnings": [warning]}
    path = tmp_path / "index.html"
    facts = {"thresholds_s": {"bursty": 2.0}, "horizon_s": HORIZON_S, "replay_s": 100}
    emulated = [found | {"agreement": None}]
    build(
        path,
        verdict=judge(scores, {}, ["wa_forecast"], emulated=emulated, **facts),
        scores=scores,
        replays=replays,
        thresholds={"bursty": threshold},
        merges={"bursty": PLAN},
        horizon_s=HORIZON_S,
        config_text="",
    )
    text = path.read_text(encoding="utf-8")
    assert warning in text[: text.index('id="regime-1"')]


def test_loads_nothing(built):
    path, text, _ = built
    own = without_plotly(text)
    assert not re.search(r"https?:", own)
    assert not re.search(r"""<(?:link|img|iframe|object)\b|@import|\bsrc\s*=""", own)
    assert "default-src 'none'" in own
    assert path.stat().st_size < 10e6
    assert [file.name for file in path.parent.iterdir()] == ["index.html"]


def test_holds_every_figure_with_an_alternative_text(built):
    _, text, _ = built
    names = {name.rpartition("-")[2] for name in figures(text)}
    assert names == {"timeline", "client", "windows", "latency", "envelope", "decomposition"}
    labels = re.findall(r'class="plot"[^>]*aria-label="([^"]+)"', text)
    assert len(labels) == len(figures(text))
    assert all(len(label) > 40 for label in labels)


def test_figures_are_valid_plotly_in_known_colours(built):
    _, text, _ = built
    style = text[text.index("<style>") : text.index("</style>")]
    for variants in figures(text).values():
        spec = json.dumps(variants)
        for token in set(re.findall(r'"@([a-z0-9]+)(?:/[0-9.]+)?"', spec)):
            assert style.count(f"--{token}:") == 2, f"{token} needs a light and a dark value"
        for variant in json.loads(re.sub(r'"@[a-z0-9/.]+"', '"#123456"', spec)):
            go.Figure(data=variant["data"], layout=variant["layout"])


def test_telemetry_that_the_server_did_not_answer_is_told(built):
    _, text, _ = built
    assert "75.0 %" in text
    assert re.search(r"of \d+ samples; \d+ preemptions", text)


def test_timeline_has_a_variant_per_block(built):
    _, text, _ = built
    (variants,) = [v for name, v in figures(text).items() if name.endswith("timeline")]
    assert len(variants) == 2


def test_policy_names_are_escaped(tmp_path):
    path = tmp_path / "index.html"
    page(path, study(blocks=1, draws=3, policy=EVIL), claims=[EVIL])
    text = without_plotly(path.read_text(encoding="utf-8"))
    assert "alert(1)" in text
    assert "<script>alert" not in text
    for variants in figures(text).values():
        assert EVIL not in json.dumps(variants)


def test_verdicts_of_a_tier_without_traces_are_shown(tmp_path):
    replays, scores, threshold = study(blocks=2, draws=3)
    scores = pd.concat([scores, scores.assign(tier="emulator")], ignore_index=True)
    facts = {"thresholds_s": {"bursty": 2.0}, "horizon_s": HORIZON_S, "replay_s": 100}
    path = tmp_path / "index.html"
    build(
        path,
        verdict=judge(scores, {}, ["wa_forecast"], **facts),
        scores=scores,
        replays=replays,
        thresholds={"bursty": threshold},
        merges={"bursty": PLAN},
        horizon_s=HORIZON_S,
        config_text="",
    )
    text = path.read_text(encoding="utf-8")
    (variants,) = [v for name, v in figures(text).items() if name.endswith("envelope")]
    assert len(variants) == 2
    assert ">emulator<" in text


def test_an_early_run_without_judge_rows_or_traces_has_a_page(tmp_path):
    _, scores, threshold = study(blocks=0)
    path = tmp_path / "index.html"
    page(path, ([], scores, threshold), claims=["wa_forecast"])
    assert "No claim was judged" in path.read_text(encoding="utf-8")


def test_many_replays_stay_small_and_say_what_was_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MAX_REPLAY_ROWS", 50)
    path = tmp_path / "index.html"
    page(path, study(blocks=14, draws=12), claims=["wa_forecast"])
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 10e6
    assert "6 of 14 blocks are shown." in text
    assert "12 of 14 blocks are shown." in text
    assert "more replays are in the folder <code>scores/</code>" in text


def test_validity_strip_names_the_invalid_replay(tmp_path):
    replays, scores, threshold = study(blocks=1, draws=3)
    scores.loc[3, ["valid", "invalid_reason"]] = [False, "a merge ended 0.40 s off plan"]
    path = tmp_path / "index.html"
    page(path, (replays, scores, threshold), claims=["wa_forecast"])
    assert "a merge ended 0.40 s off plan" in path.read_text(encoding="utf-8")


def invalid_study(chosen):
    """Return a study of 2 blocks whose rows that ``chosen`` names are invalid, and its count."""
    replays, scores, threshold = study(blocks=2, draws=4)
    wrong = chosen(scores)
    scores.loc[wrong, ["valid", "invalid_reason"]] = [False, "planted fault"]
    return replays, scores, threshold


def cells(text: str, label: str) -> list[str]:
    return re.findall(rf'<td data-label="{label}">(.*?)</td>', text, re.S)


def test_a_refused_verdict_shows_no_gain(tmp_path):
    path = tmp_path / "index.html"
    claims = ["wa_forecast", "wa_diloco"]
    bad = invalid_study(lambda rows: (rows["policy"] == "wa_forecast") & (rows["seed"] == 23))
    verdict = page(path, bad, claims=claims)
    assert [r["verdict"] == "REFUSED" for r in verdict["verdicts"]] == [True, False]
    assert verdict["verdicts"][0]["gain"] is not None
    text = path.read_text(encoding="utf-8")
    for label in ("Gain", "p, after Holm", "Requests saved"):
        refused, other = cells(text, label)
        assert refused.strip() == "\u2013"
        assert re.search(r"\d", other)


def captions(text: str) -> dict[str, str]:
    found = re.findall(r'<figcaption id="figure-1-(\w+)-caption">(.*?)</figcaption>', text, re.S)
    return dict(found)


def test_figures_leave_out_an_invalid_replay_and_say_so(tmp_path):
    path = tmp_path / "index.html"
    bad = invalid_study(lambda rows: (rows["policy"] == "wa_forecast") & (rows["seed"] == 23))
    page(path, bad, claims=["wa_forecast", "wa_diloco"])
    text = path.read_text(encoding="utf-8")
    said = captions(text)
    for name in ("timeline", "windows", "latency", "envelope"):
        assert "1 replay is left out" in said[name]
    assert (
        "left out as refused or resting on invalid replays: wa_forecast." in said["decomposition"]
    )
    drawn = figures(text)
    first, second = (json.dumps(v) for v in drawn["figure-1-timeline"])
    assert "wa_forecast" not in first
    assert "wa_forecast" in second
    envelope = json.dumps(drawn["figure-1-envelope"])
    assert "wa_forecast, seed 23" not in envelope
    assert "wa_forecast, seed 24" in envelope
    assert "No figure of replays draws the 1 that is invalid" in text


def test_row_labels_that_stand_twice_leave_out_no_more(tmp_path):
    replays, scores, threshold = invalid_study(lambda rows: rows.index == 3)
    path = tmp_path / "index.html"
    verdict = judge(
        scores, {}, ["wa_forecast"], thresholds_s={"bursty": 2.0}, horizon_s=100, replay_s=1
    )
    build(
        path,
        verdict=verdict,
        scores=scores.set_axis([0] * len(scores)),
        replays=replays,
        thresholds={"bursty": threshold},
        merges={"bursty": PLAN},
        horizon_s=HORIZON_S,
        config_text="",
    )
    assert "1 replay is left out" in captions(path.read_text(encoding="utf-8"))["envelope"]


def test_figures_leave_out_a_block_whose_capture_is_invalid(tmp_path):
    path = tmp_path / "index.html"
    bad = invalid_study(lambda rows: (rows["policy"] == "nosync") & (rows["seed"] == 23))
    page(path, bad, claims=["wa_forecast"])
    text = path.read_text(encoding="utf-8")
    assert len(figures(text)["figure-1-timeline"]) == 1
    assert "8 replays are left out" in captions(text)["latency"]
    assert "figure-1-decomposition" not in figures(text)


def test_a_page_whose_replays_are_all_invalid_says_why_it_has_no_figure(tmp_path):
    path = tmp_path / "index.html"
    page(path, invalid_study(lambda rows: rows["valid"]), claims=["wa_forecast"])
    text = path.read_text(encoding="utf-8")
    assert list(figures(text)) == ["figure-1-client"]
    assert "No figure of replays draws the 18 that are invalid" in text


def test_an_invalid_replay_keeps_its_strip_and_is_marked(tmp_path):
    path = tmp_path / "index.html"
    bad = invalid_study(lambda rows: (rows["policy"] == "wa_forecast") & (rows["seed"] == 23))
    page(path, bad, claims=["wa_forecast"])
    first, second, _ = figures(path.read_text(encoding="utf-8"))["figure-1-client"]
    labels = [[a["text"] for a in v["layout"]["annotations"]] for v in (first, second)]
    assert "wa_forecast \u00b7 \u2717 invalid" in labels[0]
    assert "wa_forecast" in labels[1]


def test_client_and_timeline_share_their_axis(built):
    _, text, _ = built
    shared = re.findall(r'data-figure="figure-1-(\w+)" data-axis="time"', text)
    assert shared == ["timeline", "client"]
    drawn = figures(text)
    ranges = {
        tuple(variant["layout"]["xaxis"]["range"])
        for name in shared
        for variant in drawn[f"figure-1-{name}"]
    }
    assert ranges == {(0, HORIZON_S)}


def regimes(count: int) -> list[tuple]:
    found = []
    for place in range(count):
        replays, scores, threshold = study(blocks=1, draws=3, regime=f"regime_{place}")
        found.append((replays, scores, threshold))
    return found


def test_several_regimes_stay_small_and_can_be_navigated(tmp_path):
    path = tmp_path / "index.html"
    found = regimes(6)
    verdict = page(path, *found, claims=["wa_forecast"])
    text = path.read_text(encoding="utf-8")
    assert all(len(replays) == 9 for replays, _, _ in found)
    assert path.stat().st_size < 10e6
    own = without_plotly(text)
    ids = set(re.findall(r'\bid="([^"]+)"', own))
    links = re.findall(r'href="#([^"]+)"', own)
    assert set(links) <= ids
    assert {f"regime-{k}" for k in range(1, 7)} <= set(links)
    assert {f"figure-{k}-client" for k in range(1, 7)} <= set(links)
    glance = own[own.index('class="glance"') : own.index('<table class="verdicts">')]
    said = re.findall(r'badge-(\w+)"', glance)
    assert said == [result["verdict"].lower() for result in verdict["verdicts"]]
    assert own.index('class="glance"') < own.index('id="regime-1"')


def test_one_regime_needs_no_glance(built):
    assert 'class="glance"' not in built[1]


def test_regimes_stand_in_the_order_of_their_thresholds(tmp_path):
    path = tmp_path / "index.html"
    page(path, *reversed(regimes(3)), claims=["wa_forecast"])
    found = re.findall(r'<h2 id="regime-\d-title">(\w+)', path.read_text(encoding="utf-8"))
    assert found == ["regime_2", "regime_1", "regime_0"]


def test_load_background_and_study_stand_in_their_regime(tmp_path):
    facts = {
        "regime": "bursty",
        "seed": 23,
        "requests": 275,
        "span_s": 100.0,
        "family": {"family": "poisson", "rate_rps": 2.75},
        "tokens": {
            "prompt": {"law": "fixed", "tokens": 64},
            "output": {"law": "fixed", "tokens": 3},
        },
        "trace": None,
        "scaling": "none",
        "clipped_prompts": 0,
        "clipped_outputs": 0,
    }
    path = tmp_path / "index.html"
    page(
        path,
        study(blocks=1, draws=3),
        claims=["wa_forecast"],
        arrivals=[facts, facts | {"regime": "another", "family": {"family": "none of ours"}}],
        backgrounds={
            "bursty": {"load": {"processes": 2, "disk_bytes_per_s": 2e7}, "training": None}
        },
        published=read_figures("resources/published/figures.csv"),
    )
    text = path.read_text(encoding="utf-8")
    assert "Simulated, family poisson." in text
    assert "Answers: 3 tokens each." in text
    assert "without merges alike: load: processes 2, load: disk bytes per s 20,000,000." in text
    begin = text.index("Beside the published study")
    table = text[begin : text.index("</table>", begin)]
    cells = re.findall(r"<td>(.*?)</td>", table)
    assert cells[0] == "1.58 to 1.75"
    assert re.fullmatch(r"\d\.\d\d to \d\.\d\d", cells[1])
    assert "not published" in cells


def test_merge_cost_says_what_a_whole_model_takes(built):
    _, text, _ = built
    # 1.9 GB in 24 rounds of a flag per rank: 23.75 models of 20 million parameters in 8.058 s
    assert "holds 23.7 merges of the whole model" in text
    assert "merging it once takes 0.34 s here" in text
    begin = text.index('aria-label="Cost per merge')
    assert "<td>0.61</td>" in text[begin : text.index("</tr>", text.index("<tbody>", begin))]


def test_words_of_the_page(built):
    _, text, _ = built
    own = without_plotly(text)
    assert "on at least 5 blocks." in own
    assert "scores.parquet" not in own
    assert "has not been shown to do more than control its budget" in own
    assert "and nothing else" not in own
    assert "probe (calibration seed 11)" in own
    assert "left out" not in own
    assert own.count("p in this block") == own.count("conditional on this trace") > 0


@pytest.mark.parametrize(
    ("budgets", "said"), [([1, 1], "1 merge,"), ([4, 4], "4 merges,"), ([4, 5], "4 or 5 merges,")]
)
def test_the_envelope_names_budgets(budgets, said):
    _, scores, _ = study(blocks=2, draws=1)
    own = scores[scores["policy"] == "wa_forecast"].assign(budget=budgets)
    figure = envelope(own, "vllm", "bursty", ["wa_forecast"], Colours(["wa_forecast"]))
    (label,) = figure.variants[0].layout["annotations"]
    assert label["text"] == f"<b>wa_forecast</b>, {said} no draws of its own"
