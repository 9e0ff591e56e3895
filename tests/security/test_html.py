"""Strings of configs, traces, manifests and documents are text on the page, whatever they hold."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser

import pandas as pd
import pytest
from report.emulated import (
    agreement_rows,
    emulated_regime,
    emulated_scores,
    training_run,
    transfer_facts,
)
from report.synthetic import HORIZON_S, PLAN, page, study

from safesync.protocol.verdict import judge
from safesync.report import page as builder
from safesync.workload.families import Poisson
from safesync.workload.generate import generate
from safesync.workload.tokens import TokenLengths

# leaves an attribute, a script and a text, where nothing is escaped
EVIL = 'x" data-evil="1"></script><evil>&'
MARKS = (
    *("regime", "policy", "warning", "version", "package", "cpu", "commit", "reason", "emulator"),
    *("Note", "background"),
)


def evil(mark: str) -> str:
    assert mark in MARKS
    return mark + EVIL


def arrivals() -> dict:
    """The facts of a trace under an ill-meant name, with ill-meant notes."""
    fixed = {"law": "fixed", "tokens": 8}
    tokens = TokenLengths(prompt=fixed, output=fixed)
    rows, facts = generate(Poisson(rate_rps=2.0), tokens, 100.0, "bursty", 23)
    trace = {
        "path": "folder/" + EVIL,
        "format": EVIL,
        "sha256": EVIL,
        "notes": [evil("Note")],
        "spread_s": 0.0,
        "rows": 9,
        "failed_rows_dropped": 0,
        "span_s": 500.0,
        "window_start_s": 0.0,
        "window_s": 500.0,
        "window_requests": 9,
        "window_rps": 0.1,
        "slices": "disjoint",
        "slices_in_window": 5,
        "slices_without_requests": 0,
        "slice_start_s": 0.0,
        "slice_s": 100.0,
        "slice_requests": 9,
        "lengths": "config",
    }
    return facts | {"regime": evil("regime"), "requests": len(rows), "trace": trace}


def build(path) -> str:
    """Build a page with every kind of string that others write; return its text, without Plotly."""
    regime, policy = evil("regime"), evil("policy")
    replays, scores, threshold = study(blocks=1, draws=4, policy=policy, regime=regime)
    for replay in replays:
        replay.manifest["versions"] = {"torch": evil("version"), evil("package"): "1"}
        replay.manifest["hardware"] = {"cpu": evil("cpu")}
        replay.manifest["git_commit"] = evil("commit")
    invalid = scores["policy"] == "fixed_h_256"
    scores.loc[invalid, ["valid", "invalid_reason"]] = [False, evil("reason")]
    both = pd.concat([scores, emulated_scores(scores)], ignore_index=True)
    transfer = transfer_facts(regime)
    transfer["gate"]["sentence"] = EVIL
    page(
        path,
        (replays, both, threshold),
        claims=[policy],
        warnings=[evil("warning")],
        judged={"emulated": [emulated_regime(regime, warnings=[evil("emulator")])]},
        arrivals=[arrivals()],
        backgrounds={regime: {"load": {evil("background"): EVIL}, "training": "none"}},
        agreement=agreement_rows(scores),
        transfers={regime: transfer},
        trainings=[
            training_run(name, draw, 1, 2.0, regime=regime)
            for name, draw in ((policy, 0), ("matched_random_4", 0), ("matched_random_4", 1))
        ],
    )
    text = path.read_text(encoding="utf-8")
    return text.replace(max(re.findall(r"<script>.*?</script>", text, re.DOTALL), key=len), "")


class Marks(HTMLParser):
    """Collects what a browser would take for tags and attributes of the planted string."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found += [tag] * (tag == "evil")
        self.found += [name for name, _ in attrs if name == "data-evil"]


def specs(text: str) -> list:
    """Return the specification of every figure."""
    found = re.findall(r'<script type="application/json" id=".*?-data">(.*?)</script>', text, re.S)
    return [json.loads(spec) for spec in found]


def strings(value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        # Plotly compares the groups of a legend and shows none of their names
        shown = [part for key, part in value.items() if key != "legendgroup"]
        yield from (one for part in shown for one in strings(part))
    elif isinstance(value, list):
        yield from (one for part in value for one in strings(part))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("evil") / "index.html")


def test_no_string_becomes_a_tag_or_an_attribute(built):
    assert Marks(built).found == []


def test_labels_of_figures_are_text_too(built):
    # Plotly reads its labels as HTML
    labels = [label for spec in specs(built) for label in strings(spec)]
    assert len(specs(built)) >= 6
    assert [label for label in labels if "<evil" in label] == []
    assert any("&lt;evil&gt;" in label for label in labels)


@pytest.mark.parametrize("mark", MARKS)
def test_every_planted_string_is_on_the_page(built, mark):
    assert mark + "x&#34; data-evil=&#34;1&#34;&gt;&lt;/script&gt;&lt;evil&gt;&amp;" in built


def test_the_config_is_text(tmp_path):
    replays, scores, threshold = study(blocks=1, draws=3)
    builder.build(
        tmp_path / "index.html",
        verdict=judge(scores, {}, [], thresholds_s={"bursty": 2.0}, horizon_s=100, replay_s=1),
        scores=scores,
        replays=replays,
        thresholds={"bursty": threshold},
        merges={"bursty": PLAN},
        horizon_s=HORIZON_S,
        config_text=f"run: {EVIL}",
    )
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "run: x&#34; data-evil" in text
    assert Marks(text).found == []


def test_a_page_that_escapes_nothing_is_found(tmp_path, monkeypatch):
    environment = builder._environment

    def careless():
        made = environment()
        made.autoescape = False
        return made

    monkeypatch.setattr(builder, "_environment", careless)
    found = Marks(build(tmp_path / "index.html")).found
    assert {"evil", "data-evil"} <= set(found)


def test_a_label_that_is_a_tag_is_found():
    assert list(strings([{"text": ["<evil>"]}])) == ["<evil>"]
