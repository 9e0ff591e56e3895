"""`snakemake --report`: every marked result with its caption, made and read without a network."""

import json
import re
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from zipfile import ZipFile

import pytest
from report.devtools import running

from workflow.project import SMOKE

RUN = Path("results/smoke")
# which files are marked, how their captions begin, where they stand
MARKED = {
    "report/index.html": ("The verdict page of run smoke: one file", "Verdict"),
    "verdict.json": ("The verdicts as a document: per tier,", "Verdict"),
    "scores/tier_vllm/*/*.parquet": ("One row per replay: violations", "Tables"),
    "overlap/*/*.parquet": ("One row per policy: the requests that its merge windows", "Tables"),
    "agreement/*/*.parquet": ("Every real replay of a judged block against its", "Tables"),
}


@dataclass(frozen=True)
class Report:
    """The unpacked archive: its page, and what the page lists."""

    page: Path
    results: dict[str, dict]
    categories: dict[str, dict]
    said: str


@pytest.fixture(scope="module")
def report(finished, tmp_path_factory) -> Report:
    folder = tmp_path_factory.mktemp("snakemake")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            patch.setenv(name, "http://127.0.0.1:9")  # nothing answers there
        status, said = finished.run("--report", str(folder / "report.zip"), config=SMOKE)
    assert status == 0, said
    with ZipFile(folder / "report.zip") as archive:
        archive.extractall(folder)
    page = folder / "report/report.html"
    text = page.read_text(encoding="utf-8")
    results, categories = (
        json.loads(re.search(rf'<script id="{name}">\s*var {name} = (.*);\n', text)[1])
        for name in ("results", "categories")
    )
    return Report(page, results, categories, said)


def words(markup: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", "", markup)).split())


def marked(folder: Path) -> dict[str, tuple[str, str]]:
    """Return what each marked file of the run must be listed with."""
    return {
        str(path.relative_to(folder)): said
        for pattern, said in MARKED.items()
        for path in (folder / RUN).glob(pattern)
    }


def test_it_lists_each_marked_result_with_its_caption(finished, report):
    wanted = marked(finished.folder)
    assert len(wanted) >= len(MARKED)
    assert set(report.results) == set(wanted)
    for path, (begins, _) in wanted.items():
        caption = words(report.results[path]["caption"])
        assert caption.startswith(begins), path
        assert "{{" not in caption
        assert "system-message" not in report.results[path]["caption"]
        assert report.results[path]["labels"]
    assert {
        path: category
        for category, parts in report.categories.items()
        for paths in parts.values()
        for path in paths
    } == {path: category for path, (_, category) in wanted.items()}


def test_it_holds_the_files_themselves(finished, report):
    for path, entry in report.results.items():
        kept = report.page.parent / entry["data_uri"]
        assert kept.read_bytes() == (finished.folder / path).read_bytes(), path


def test_nothing_was_fetched_for_it(report):
    assert "downloading" not in report.said
    assert "matched-random placements" in words(report.page.read_text(encoding="utf-8"))


def test_it_opens_without_a_network(report, tmp_path):
    verdict = str(RUN / "verdict.json")
    with running(tmp_path) as browser, browser.page(report.page) as page:
        page.wait("document.body.innerText.includes('Verdict')")
        page.evaluate("app.showCategory('Tables')")
        page.wait("document.body.innerText.includes('agreement')")
        page.evaluate(f"app.showResultInfo('{verdict}')")
        page.wait("document.body.innerText.includes('The verdicts as a document')")
        assert page.requests == [report.page.as_uri()]
        # the style sheet's compiler says on every page that it is meant for development
        assert [one for one in page.problems if "tailwindcss" not in one] == []
