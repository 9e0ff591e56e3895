"""Training runs on the page: curves with marks at merges, final losses, the parity gate."""

import json
import re
from base64 import b64decode

import numpy as np
import plotly.graph_objects as go
import pytest
from report.emulated import training_run, training_runs
from report.synthetic import page, study

from safesync.protocol.gates import Scope
from safesync.protocol.parity import NAME, training_parity
from safesync.report.figures.base import Colours
from safesync.report.figures.training import training_figure
from safesync.report.training import final_losses, parity_gates

POLICIES = ["wa_forecast", "fixed_h_256", "matched_random"]
ALIKE = dict.fromkeys(
    (
        *("steps", "islands", "batch", "parameters", "slot", "slots", "corpus_sha256"),
        *("fragments", "delay_steps"),
    ),
    1,
)


def drawn(runs):
    return training_figure(runs, POLICIES, Colours(POLICIES[:2]))


def gate_of(runs) -> tuple:
    facts = [run.facts | ALIKE for run in runs]
    return training_parity("wa_forecast", "bursty", facts, margin=0.02, alpha=0.05)


def built(path, runs, **judged) -> str:
    page(path, study(blocks=1, draws=3), claims=["wa_forecast"], trainings=runs, judged=judged)
    return path.read_text(encoding="utf-8")


def losses(trace: dict) -> np.ndarray:
    return np.frombuffer(b64decode(trace["y"]["bdata"]), "<f4")


def test_a_mark_per_merge_and_none_at_the_start():
    figure = drawn(training_runs(seeds=[1]))
    (variant,) = figure.variants
    assert variant.label == "block 23, training seed 1"
    held = {t["name"]: t for t in variant.data if t["mode"] == "lines+markers" and t["showlegend"]}
    assert set(held) == {
        "matched_random, 4 merges",
        "wa_forecast, 4 merges",
        "fixed_h_256, 4 merges",
    }
    own = held["wa_forecast, 4 merges"]
    assert own["x"] == [0, 200, 500, 750, 1000, 1300]
    assert own["marker"]["size"] == [0, 8, 8, 8, 8, 8]
    assert own["y"][-1] == 2.01
    assert held["fixed_h_256, 4 merges"]["x"][1:5] == [256, 512, 768, 1024]
    assert sum(t["mode"] == "lines+markers" for t in variant.data) == 5
    assert sum(t.get("showlegend", True) for t in variant.data) == 3


def test_thin_lines_are_means_over_islands_and_neighbouring_steps():
    run = training_run("wa_forecast", 0, 1, 2.0)
    run.losses["loss"] = run.losses["step"] + np.where(run.losses["island"] == 0, 5.0, -5.0)
    thin, _ = drawn([run]).variants[0].data
    steps = np.frombuffer(b64decode(thin["x"]["bdata"]), "<f4")
    assert len(steps) == 120
    assert losses(thin) == pytest.approx(steps)


def test_a_variant_per_block_and_training_seed():
    runs = [*training_runs(), training_run("wa_forecast", 0, 1, 2.0, block=29)]
    labels = [variant.label for variant in drawn(runs).variants]
    assert labels == [
        *(f"block 23, training seed {seed}" for seed in (1, 2, 3)),
        "block 29, training seed 1",
    ]
    assert drawn([]) is None


def test_final_losses_by_hand():
    table = final_losses(training_runs(worse=0.03), POLICIES)
    assert table["seeds"] == [1, 2, 3]
    rows = {(row["policy"], row["draw"]): row for row in table["rows"]}
    assert list(rows) == [
        ("wa_forecast", 0),
        ("fixed_h_256", 0),
        *(("matched_random", draw) for draw in range(3)),
    ]
    own = rows["wa_forecast", 0]
    assert own["losses"] == pytest.approx([2.04, 2.05, 2.06])
    assert own["mean"] == pytest.approx(2.05)
    assert own["difference"] == pytest.approx(0.03)
    assert rows["fixed_h_256", 0]["difference"] == pytest.approx(0.005)
    assert rows["matched_random", 1]["difference"] is None


def test_draws_of_another_budget_or_block_are_no_control():
    own = training_run("wa_forecast", 0, 1, 2.0)
    others = [
        training_run("matched_random_3", 0, 1, 1.0, merges=(300, 600, 900)),
        training_run("matched_random_4", 0, 1, 1.0, block=29),
        training_run("matched_random_4", 0, 2, 1.0),
    ]
    rows = final_losses([own, *others], POLICIES)["rows"]
    (found,) = [row for row in rows if row["policy"] == "wa_forecast"]
    assert found["difference"] is None
    assert found["losses"] == [2.0, None]


def test_the_difference_is_that_of_the_gate():
    runs = training_runs(worse=0.03)
    _, gate = gate_of(runs)
    (own, *_) = final_losses(runs, POLICIES)["rows"]
    assert f"{own['difference']:+.4f} nats" in gate.sentence


def test_the_gate_is_told_once_for_all_tiers():
    gate = {"name": NAME, "passed": True, "sentence": "as well"}
    other = gate | {"name": "causality"}
    results = [{"policy": "wa", "gates": [other, gate]}, {"policy": "wa", "gates": [gate]}]
    assert parity_gates(results) == [{"policy": "wa", "passed": True, "sentence": "as well"}]
    assert parity_gates([{"policy": "wa", "gates": []}]) == []


@pytest.mark.parametrize(
    ("worse", "said"), [(0.0, "✓ no worse by the margin"), (0.5, "✗ trains worse")]
)
def test_page_says_what_the_gate_says(tmp_path, worse, said):
    runs = training_runs(worse=worse)
    text = built(tmp_path / "index.html", runs, given_gates=[gate_of(runs)])
    begin = text.index('id="figure-1-training"')
    here = text[begin : text.index("</table>", begin)]
    assert (
        f'<strong>wa_forecast</strong>: <span class="{"good" if worse == 0 else "bad"}">{said}'
        in here
    )
    assert gate_of(runs)[1].sentence in here
    assert f"<td>{2.02 + worse:.4f}</td><td>{'+' if worse else ''}{worse:.4f}</td>" in here
    spec = re.search(r'id="figure-1-training-data">(.*?)</script>', text, re.S)[1]
    style = text[text.index("<style>") : text.index("</style>")]
    for token in set(re.findall(r'"@([a-z0-9]+)(?:/[0-9.]+)?"', spec)):
        assert style.count(f"--{token}:") == 2, token
    for variant in json.loads(re.sub(r'"@[a-z0-9/.]+"', '"#123456"', spec)):
        go.Figure(data=variant["data"], layout=variant["layout"])


def test_one_training_seed_decides_nothing_and_is_shown(tmp_path):
    runs = training_runs(seeds=[1])
    scope, gate = gate_of(runs)
    assert scope == Scope(regime="bursty", policy="wa_forecast")
    text = built(tmp_path / "index.html", runs, given_gates=[(scope, gate)])
    assert "◌ not decided" in text
    assert "one training seed has no spread" in text


def test_a_run_without_training_has_no_such_part(tmp_path):
    text = built(tmp_path / "index.html", [])
    assert "figure-1-training" not in text
    assert "Final held-out losses" not in text
