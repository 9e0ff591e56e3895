"""What the docs say: examples run, links lead somewhere, tables are those of the code."""

import gc
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from safesync.config import load
from safesync.protocol import gates
from safesync.protocol.published import read_figures, readings

PAGES = [Path("README.md"), *sorted(Path("docs").glob("*.md")), *Path("resources").rglob("*.md")]
ROOT = Path.cwd()


def blocks(page, language):
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", Path(page).read_text(), re.DOTALL | re.M)


def anchors(page):
    """The anchors of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """A folder with the files of docs/add-a-policy.md, named by their first lines."""
    folder = tmp_path_factory.mktemp("example")
    for block in blocks("docs/add-a-policy.md", "python"):
        name = re.match(r"# (\w+\.py): ", block)[1]
        (folder / name).write_text(block)
    return folder


def test_the_example_prints_what_the_page_says(example):
    done = subprocess.run(
        [sys.executable, "try_lull.py"], cwd=example, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == blocks("docs/add-a-policy.md", "text")[0]


def test_the_example_is_a_valid_config(example, monkeypatch):
    monkeypatch.chdir(example)
    config = load(yaml.safe_load(blocks(ROOT / "docs/add-a-policy.md", "yaml")[0]))
    assert config.policies[0].build().parameters.share == 0.4
    assert config.claims == ["lull"]


def test_the_table_of_requests_is_read_as_the_page_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for seed, done_s in ((1, [0.5, 4.5]), (2, [3.0, 5.0])):
        part = Path(f"results/default/requests/regime=bursty/seed={seed}/policy=a/draw=0")
        part.mkdir(parents=True)
        rows = pd.DataFrame({"arrival_s": [0.0, 2.0], "done_s": done_s})
        rows.to_parquet(part / "part.parquet")
    exec(blocks(ROOT / "docs/reading-a-report.md", "python")[0], {})
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["bursty", "1", "a", "0", "1"] in said
    assert ["2", "a", "0", "2"] in said


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_exist(page):
    text = page.read_text()
    targets = set(re.findall(r"^([a-z-]+):", Path("Makefile").read_text(), re.M))
    assert set(re.findall(r"(?:`|^ +)make ([a-z]+)", text, re.M)) <= targets
    for script in re.findall(r"python (benchmarks/\S+?\.py)", text):
        assert Path(script).is_file(), script
    for module in re.findall(r"python -m (safesync[\w.]*)", text):
        path = Path("src", *module.split("."))
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


def test_every_gate_is_explained():
    text = Path("docs/protocol.md").read_text()
    named = re.findall(r"^\| ([\w -]+) \| .* \| (?:refuses|withholds) \|$", text, re.M)
    later = {gate.name for tier in ("vllm", "emulator") for gate in gates.later_gates(tier)}
    there = {gate.name for gate in gates.without_replays()} | {gates.exact_budget(1).name} | later
    tested = {
        gates.resolution(1, 1.0, level=0.05, min_blocks=5).name,
        gates.envelope(1.0, alpha=0.05).name,
        gates.minimum_gain(0.0, min_gain=0.01).name,
    }
    assert len(named) == len(set(named))
    assert set(named) == there | tested


def test_the_published_claims_are_those_of_the_code():
    gc.freeze()
    text = Path("docs/protocol.md").read_text()
    for reading in readings(read_figures("resources/published/figures.csv")):
        gain = reading.result["gain"]
        p = f"{reading.result['claim']['p_claim']:.2g}".removeprefix("0")
        row = (
            f"| {reading.regime} | {reading.policy.replace('_calibrated', ' calibrated')} "
            f"| {gain['points']:+.2f} ({gain['low_points']:+.2f} to {gain['high_points']:+.2f}) "
            f"| {p} | {reading.result['verdict']} | {reading.lenient['verdict']} |"
        )
        assert row in text
    gc.unfreeze()


def test_no_page_holds_a_placeholder():
    for page in PAGES:
        assert not re.findall(r"@[A-Z0-9]+@|OUTPUT|TODO", page.read_text()), page
