"""The table of styles: figures by hand, the blocking run that a loss is compared with, the page."""

import re
from dataclasses import replace

import pandas as pd
import pytest
from report.emulated import training_run
from report.synthetic import page, study

from safesync.report.merges import MergePlan
from safesync.report.replay import Replay
from safesync.report.styles import style_rows
from safesync.report.training import TrainingRun, final_losses

POLICIES = ["even", "late", "slow", "nosync", "matched_random"]
SMALL = MergePlan(merge_s=8.0, tolerance_s=0.25, parameters=1000, ranks=4)
EVEN = (256, 512, 768, 1024)


def merges(*windows):
    """Windows of (seconds, whole models), in rounds of one model each."""
    rows = pd.DataFrame(windows, columns=["end_s", "rounds"])
    rows["start_s"] = 0.0
    rows["reduced_bytes"] = (4 * 1000 + 16) * rows["rounds"]
    for name in ("reduce_s", "optimizer_s", "checkpoint_s", "written_bytes"):
        rows[name] = 1.0
    return rows


def replay(policy, style, rows, seed=23, delay_s=None):
    manifest = {"config": {"merge": {"style": style}}, "figures": {"merge_delay_s": delay_s}}
    return Replay("vllm", "r", seed, "judge", policy, 0, 2, pd.DataFrame(), rows, None, None,
                  manifest)  # fmt: skip


def run(policy, style, training_seed, loss, merges=EVEN, block=23, delay_steps=0):
    made = training_run(policy, 0, training_seed, loss, merges=merges, block=block)
    facts = {**made.facts, "style": style, "delay_steps": delay_steps}
    return TrainingRun(facts, made.losses)


def scored(*rows):
    names = ["policy", "violation_rate", "excess_rate", "e2e_p95_s"]
    return pd.DataFrame(rows, columns=names)


REPLAYS = [
    replay("late", "overlapped", merges((20.0, 4), (30.0, 4)), delay_s=0.2),
    replay("late", "overlapped", merges((20.0, 4), (30.0, 4)), seed=29, delay_s=0.4),
    replay("even", "blocking", merges((8.0, 5), (8.5, 6)), delay_s=0.1),
    replay("slow", "throttled", merges((8.0, 1), (8.0, 0))),
    replay("matched_random", "blocking", merges((8.0, 5), (8.0, 5))),
    replay("nosync", "blocking", merges()),
]
SCORES = scored(
    ("nosync", 0.01, 0.0, 1.0),
    ("even", 0.05, 0.04, 2.0),
    ("late", 0.02, 0.01, 1.5),
    ("late", 0.04, 0.03, 2.5),
    ("slow", 0.03, 0.02, 1.75),
    ("matched_random", 0.5, 0.5, 9.0),
)
RUNS = [
    *(run("even", "blocking", seed, 2.0 + seed) for seed in (1, 2)),
    *(run("late", "overlapped", seed, 2.1 + 1.1 * seed, delay_steps=5) for seed in (1, 2)),
    run("slow", "throttled", 1, 3.0),
    run("matched_random_4", "blocking", 1, 9.0, merges=(200, 500, 750, 1000)),
]


def rows_of(replays=REPLAYS, runs=RUNS):
    return {row["policy"]: row for row in style_rows(replays, SCORES, runs, POLICIES, SMALL)}


def test_figures_by_hand():
    rows = rows_of()
    assert list(rows) == ["nosync", "even", "late", "slow"]
    assert rows["late"] == pytest.approx(
        {
            "policy": "late",
            "replays": 2,
            "violation_rate": 0.03,
            "excess_rate": 0.02,
            "e2e_p95_s": 2.0,
            "style": "overlapped",
            "reduced_bytes": 8 * 4016,
            "models": 4.0,
            "delay_s": 0.3,
            "held_s": 0.0,
            "loss": 3.75,
            "more": 0.25,  # 0.2 and 0.3
            "delay_steps": 5,
        }
    )
    assert rows["even"]["held_s"] == 16.5
    assert rows["even"]["models"] == 5.5
    assert rows["even"]["reduced_bytes"] == 11 * 4016
    assert (rows["even"]["loss"], rows["even"]["more"]) == (3.5, None)
    assert (rows["slow"]["held_s"], rows["slow"]["models"]) == (16.0, 0.5)
    assert (rows["slow"]["delay_s"], rows["slow"]["more"]) == (None, 0.0)


def test_a_capture_has_no_merges_and_no_loss():
    row = rows_of()["nosync"]
    assert (row["violation_rate"], row["e2e_p95_s"]) == (0.01, 1.0)
    names = ("style", "reduced_bytes", "models", "delay_s", "held_s", "loss", "more")
    assert [row[name] for name in names] == [None] * 7


@pytest.mark.parametrize(
    "other",
    [
        run("even", "blocking", 1, 1.0, merges=(256, 512, 768, 1025)),
        run("even", "blocking", 1, 1.0, block=29),
        run("even", "blocking", 3, 1.0),
        run("even", "throttled", 1, 1.0),
    ],
    ids=["merges", "block", "training seed", "style"],
)
def test_a_loss_is_compared_with_blocking_runs_on_the_same_merges_only(other):
    late = run("late", "overlapped", 1, 3.2, delay_steps=5)
    row = rows_of(runs=[late, other])["late"]
    assert (row["loss"], row["more"]) == (3.2, None)


def test_blocking_merges_alone_have_no_table():
    blocking = [one for one in REPLAYS if one.style == "blocking"]
    assert style_rows(blocking, SCORES, RUNS, POLICIES, SMALL) == []
    assert style_rows([], SCORES, RUNS, POLICIES, SMALL) == []


def test_another_style_is_no_comparison_of_placements():
    draws = [run("matched_random_4", "blocking", 1, 2.0), run("late", "overlapped", 1, 2.5)]
    rows = {row["policy"]: row for row in final_losses(draws, POLICIES)["rows"]}
    assert rows["late"]["style"] == "overlapped"
    assert rows["late"]["difference"] is None
    rows = final_losses([draws[0], run("even", "blocking", 1, 2.5)], POLICIES)["rows"]
    assert [row["difference"] for row in rows] == [0.5, None]


def overlapped(found: Replay) -> Replay:
    """The replay with merges that last until the next one begins."""
    rows = found.merges.assign(end_s=[*found.merges["start_s"].iloc[1:], 100.0])
    figures = found.manifest["figures"] | {"merge_delay_s": 0.25}
    changes = {"figures": figures, "config": {"merge": {"style": "overlapped"}}, "horizon_s": 100}
    return replace(found, merges=rows, manifest=found.manifest | changes)


def test_page_shows_the_table_where_a_style_was_measured(tmp_path):
    replays, scores, threshold = study(blocks=1, draws=3)
    replays = [overlapped(one) if one.policy == "wa_diloco" else one for one in replays]
    runs = [
        run("fixed_h_256", "blocking", 1, 2.0),
        run("wa_diloco", "overlapped", 1, 2.5, delay_steps=5),
    ]
    path = tmp_path / "index.html"
    page(path, (replays, scores, threshold), claims=["wa_forecast"], trainings=runs)
    text = path.read_text(encoding="utf-8")
    assert '<a href="#styles-1">' in text
    begin = text.index('id="styles-1"')
    table = text[begin : text.index("</table>", begin)]
    (row,) = re.findall(r'<tr><th scope="row">wa_diloco</th>(.*?)</tr>', table, re.S)
    cells = [re.sub("<[^>]*>", " ", cell) for cell in re.findall(r"<td>(.*?)</td>", row, re.S)]
    assert cells[0] == "overlapped"
    assert cells[1] == "1"
    assert cells[5] == f"{4 * 1_900_000_000 / 2**30:.1f} GiB"
    assert cells[6] == "23.75"
    assert cells[7] == "0.250 trained with 5 steps "
    assert cells[8:] == ["0.0", "2.5000", "+0.5000"]
    assert "wa_diloco, overlapped</th>" in text[text.index('aria-label="Final held-out losses') :]


def test_page_of_blocking_merges_has_no_such_table(tmp_path):
    path = tmp_path / "index.html"
    page(path, study(blocks=1, draws=3), claims=["wa_forecast"])
    assert 'id="styles-1"' not in path.read_text(encoding="utf-8")
