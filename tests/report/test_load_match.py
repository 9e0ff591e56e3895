"""The load match on the page: what each block's capture carried, and who carried something else."""

import pandas as pd
import pytest
from report.emulated import calibrated_study, emulated_regime
from report.synthetic import page, study

from safesync.protocol.gates import LOAD
from safesync.report.tables import load_match


def rows_of(*changes: dict) -> pd.DataFrame:
    """Return the capture and two draws of one block; ``changes`` to each of them."""
    base = {
        "seed": 23,
        "role": "judge",
        "arrivals_sha256": "ab" * 32,
        "requests": 10,
        "sent": 10,
        "offered_prompt_tokens": 640,
    }
    names = [("matched_random", 1), ("nosync", 0), ("wa", 0)]
    found = [base | {"policy": policy, "draw": draw} for policy, draw in names]
    return pd.DataFrame([row | change for row, change in zip(found, changes, strict=True)])


def test_equal_loads_match():
    (block,) = load_match(rows_of({}, {}, {}))
    assert (block["seed"], block["role"], block["replays"], block["other"]) == (23, "judge", 2, [])
    assert block["capture"]["policy"] == "nosync"
    assert block["capture"]["sent"] == 10


@pytest.mark.parametrize(("column", "what"), LOAD)
def test_each_difference_is_named(column, what):
    other = {column: "cd" * 32 if column == "arrivals_sha256" else 9}
    (block,) = load_match(rows_of(other, {}, {}))
    assert block["other"] == [f"matched_random draw 1, seed 23: {what}"]
    (block,) = load_match(rows_of({}, other, {}))  # it is the capture that differs
    assert len(block["other"]) == 2


def test_all_differences_of_a_replay_are_one_line():
    (block,) = load_match(rows_of({}, {}, {"sent": 9, "offered_prompt_tokens": 576}))
    assert block["other"] == [
        "wa draw 0, seed 23: another number of requests sent, other prompt tokens sent"
    ]


def test_a_block_without_a_capture_matches_nothing():
    rows = rows_of({}, {}, {})
    (block,) = load_match(rows[rows["policy"] != "nosync"])
    assert block["capture"] is None
    assert (block["replays"], block["other"]) == (2, [])


def part(text: str) -> str:
    begin = text.index('<h3 id="match-1">')
    return text[begin : text.index("<figure", begin)]


def built(path, replays, scores, threshold, **more) -> str:
    page(path, (replays, scores, threshold), claims=["wa_forecast"], **more)
    return part(path.read_text(encoding="utf-8"))


def test_the_page_has_a_row_per_block(tmp_path):
    replays, scores, threshold = study(blocks=2, draws=3)
    text = built(tmp_path / "index.html", replays, scores, threshold)
    assert "✓ Every replay carried the load of its block's capture." in text
    assert text.count("<tr><th") == 1 + 3  # two judged blocks and the calibration seed
    quiet = scores[(scores["policy"] == "nosync") & (scores["seed"] == 23)].iloc[0]
    assert (
        f"<code>{quiet['arrivals_sha256'][:12]}</code></td><td>{quiet['requests']}</td>"
        f"<td>{quiet['sent']}</td><td>{quiet['offered_prompt_tokens']:,}</td><td>6</td><td>6</td>"
    ) in text


def test_the_page_names_who_carried_another_load(tmp_path):
    replays, scores, threshold = study(blocks=2, draws=3)
    wrong = (scores["policy"] == "wa_forecast") & (scores["seed"] == 24)
    scores.loc[wrong, "sent"] -= 1
    text = built(tmp_path / "index.html", replays, scores, threshold)
    assert "✗ 1 replay did not carry the load of the block's capture." in text
    assert "<li>wa_forecast draw 0, seed 24: another number of requests sent</li>" in text
    assert "<td>6</td><td>5</td>" in text


def test_a_block_without_a_capture_is_open_on_the_page(tmp_path):
    replays, scores, threshold = study(blocks=2, draws=3)
    scores = scores[(scores["policy"] != "nosync") | (scores["seed"] != 24)]
    text = built(tmp_path / "index.html", replays, scores, threshold)
    assert "◌ 1 block has no capture to match." in text
    assert "✓" not in text


def test_emulated_rows_are_not_listed(tmp_path):
    replays, scores, threshold = calibrated_study(blocks=2, draws=3)
    path = tmp_path / "index.html"
    judged = {"emulated": [emulated_regime("bursty")]}
    text = built(path, replays, scores, threshold, judged=judged)
    assert text.count("<tr><th") == 1 + 3
    page_text = path.read_text(encoding="utf-8")
    begin = page_text.index('aria-label="Scores of every replay')
    table = page_text[begin : page_text.index("</table>", begin)]
    assert "<td>emulator</td>" not in table
    assert table.count("<tr><th") == 1 + int((scores["tier"] == "vllm").sum())
