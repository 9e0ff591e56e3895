"""The page in a real browser: silent, self-contained, readable, and usable with mouse or keys."""

import base64
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import numpy as np
import pytest
from protocol.planted_overlap import overlap_study
from report.devtools import Page, running
from report.emulated import (
    agreement_rows,
    calibrated_study,
    emulated_regime,
    training_runs,
    transfer_facts,
)
from report.synthetic import HORIZON_S, page, study

from safesync.protocol.published import read_figures
from safesync.tables import read_document, write_document

TIMELINE, CLIENT = "figure-1-timeline", "figure-1-client"
TIERS = {"vllm": "real vLLM", "emulator": "emulator", "overlap": "overlap, exact"}
OF_EVERY_REGIME = {"timeline", "client", "windows", "latency", "envelope", "decomposition"}
FIRST_REGIME = OF_EVERY_REGIME | {
    "agreement",
    "transfer",
    "null",
    "forecast",
    "overlap-decomposition",
    "training",
}
ARRIVALS = {
    "regime": "bursty",
    "seed": 23,
    "requests": 275,
    "span_s": HORIZON_S,
    "family": {"family": "poisson", "rate_rps": 2.75},
    "tokens": {"prompt": {"law": "fixed", "tokens": 64}, "output": {"law": "fixed", "tokens": 16}},
    "trace": None,
    "scaling": "none",
    "clipped_prompts": 0,
    "clipped_outputs": 0,
}

OPEN_ALL = "document.querySelectorAll('details').forEach((details) => (details.open = true))"
DRAW_ALL = """
(async () => {
  for (const plot of document.querySelectorAll(".plot")) {
    plot.scrollIntoView({ behavior: "instant", block: "center" });
    while (!plot.querySelector(".main-svg[aria-hidden]")) {
      await new Promise((done) => setTimeout(done, 20));
    }
  }
  scrollTo({ top: 0, behavior: "instant" });
})()
"""
CHOOSE_ALL = """
(async () => {
  for (const input of document.querySelectorAll(".variants input")) {
    input.click();
    await new Promise((done) => setTimeout(done, 0));
  }
})()
"""
STOPS = """
(window.stops = [
  ...document.querySelectorAll("a[href], summary, input, button, [tabindex]"),
].filter(
  (one) => one.tabIndex >= 0 && one.checkVisibility() && (one.type !== "radio" || one.checked),
)).length
"""
FOCUSED = """
(() => {
  const one = document.activeElement;
  const seen = getComputedStyle(one.type === "radio" ? one.nextElementSibling : one);
  const name = one.getAttribute("aria-label") ?? one.labels?.[0]?.textContent ?? one.textContent;
  return {
    place: window.stops.indexOf(one),
    name: name.trim(),
    outline: seen.outlineStyle === "none" ? 0 : parseFloat(seen.outlineWidth),
  };
})()
"""
FAINT = """
(() => {
  const numbers = (colour) => (colour.match(/[0-9.]+/g) ?? []).map(Number);
  const channel = (c) => (c <= 10.3 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) =>
    0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b) + 0.05;
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const found = numbers(getComputedStyle(one).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
  };
  const faint = [];
  for (const one of document.querySelectorAll("body *")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || one.closest("script, noscript") || !one.checkVisibility()) continue;
    const style = getComputedStyle(one);
    const ink = numbers(one instanceof SVGElement ? style.fill : style.color);
    const [low, high] = [light(ink), light(ground(one))].sort((a, b) => a - b);
    if (high / low < 4.5) faint.push(`${one.textContent.trim().slice(0, 40)}: ${high / low}`);
  }
  return faint;
})()
"""
MEETING = """
(() => {
  const met = [];
  const kinds = [".annotation-text", ".textpoint text", ".bartext", ".legendtext", ".xtitle"];
  kinds.push(".xtick text", ".ytick text");
  for (const plot of document.querySelectorAll(".plot")) {
    const texts = [...plot.querySelectorAll(kinds.join(","))].map((text) => [
      text.textContent,
      text.getBoundingClientRect(),
    ]);
    texts.forEach(([said, a], place) => {
      for (const [other, b] of texts.slice(place + 1)) {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 2 && high > 3) met.push(`${plot.dataset.figure}: ${said} / ${other}`);
      }
    });
  }
  return met;
})()
"""


@dataclass(frozen=True)
class Built:
    """A page, and the verdict document that lies beside it."""

    path: Path
    verdict: dict
    arrivals_s: np.ndarray

    def spec(self, figure: str, variant: int = 0) -> dict:
        """Return what the page draws a figure from."""
        text = self.path.read_text(encoding="utf-8")
        found = re.search(rf'id="{figure}-data">(.*?)</script>', text, re.S)[1]
        return json.loads(found)[variant]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Built:
    """A page with every figure there is."""
    folder = tmp_path_factory.mktemp("report")
    replays, scores, threshold = calibrated_study(blocks=2, draws=3)
    overlap = overlap_study(blocks=2)
    error = overlap["policy"].map({"blind": 0.5, "seeker": 2.0})
    overlap = overlap.assign(
        policy=overlap["policy"].replace("fixed_h_12", "fixed_h_256"),
        forecast_error=error,
        method=overlap["method"].where(error.isna(), "horizon"),
    )
    verdict = page(
        folder / "index.html",
        (replays, scores, threshold),
        study(blocks=2, draws=3, regime="steady"),
        claims=["wa_forecast", "wa_diloco", "oracle"],
        warnings=["wa_forecast, bursty, seed 23: merges were forced at h_max."],
        judged={
            "overlap": overlap,
            "emulated": [
                emulated_regime("bursty"),
                emulated_regime("steady", calibrated=False, why="no window met a request."),
            ],
        },
        overlap=overlap,
        arrivals=[ARRIVALS],
        published=read_figures("resources/published/figures.csv"),
        agreement=agreement_rows(scores),
        transfers={"bursty": transfer_facts("bursty")},
        trainings=training_runs(),
    )
    write_document(folder / "verdict.json", verdict)
    capture = next(r for r in replays if r.policy == "nosync" and r.seed == 23)
    return Built(
        folder / "index.html",
        read_document(folder / "verdict.json"),
        capture.requests["arrival_s"].to_numpy(),
    )


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with running(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def opened(browser, built):
    with browser.page(built.path) as found:
        yield found


def show(page: Page, figure: str) -> None:
    """Scroll a figure into the middle of the window."""
    page.evaluate(
        f"document.querySelector('#{figure} .plot')"
        ".scrollIntoView({ behavior: 'instant', block: 'center' })"
    )


def point(page: Page, figure: str, x: float, y: float, axis: str) -> list[float]:
    """Return where a point of a figure's data stands in the window, pixels."""
    return page.evaluate(
        f"""(() => {{
          const plot = document.querySelector("#{figure} .plot");
          const {{ left, top }} = plot.getBoundingClientRect();
          const {{ xaxis, {axis}: other }} = plot._fullLayout;
          return [
            left + xaxis._offset + xaxis.d2p({x}),
            top + other._offset + other.d2p({y}),
          ];
        }})()"""
    )


def shown(page: Page, figure: str) -> list[float]:
    """Return the stretch of time that a figure shows, seconds."""
    return page.evaluate(f"document.querySelector('#{figure} .plot')._fullLayout.xaxis.range")


def wait_for_range(page: Page, figure: str, low: float, high: float, within: float = 1e-6):
    found = f"document.querySelector('#{figure} .plot')._fullLayout.xaxis.range"
    near = [f"Math.abs({found}[{k}] - {end}) <= {within}" for k, end in enumerate((low, high))]
    page.wait(" && ".join(near))


def ticks(page: Page, figure: str) -> list[float]:
    """Return the numbers below a figure's time axis."""
    said = page.evaluate(
        f"[...document.querySelectorAll('#{figure} .xtick text')].map((text) => text.textContent)"
    )
    return [float(text) for text in said]


def bars(page: Page) -> int:
    """Return how many merge windows of the timeline are in sight."""
    return page.evaluate(
        f"""(() => {{
          const plot = document.querySelector("#{TIMELINE} .plot");
          const {{ _offset, _length }} = plot._fullLayout.xaxis;
          const left = plot.getBoundingClientRect().left + _offset;
          return [...plot.querySelectorAll(".barlayer .point path")].filter((bar) => {{
            const box = bar.getBoundingClientRect();
            return box.width && box.right > left && box.left < left + _length;
          }}).length;
        }})()"""
    )


def settled(page: Page, script: str) -> list:
    """Return what ``script`` still finds after some seconds, or nothing as soon as that is so."""
    end = time.monotonic() + 5
    while (found := page.evaluate(script)) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def press_button(page: Page, kind: str, at: list[float]) -> None:
    held = int(kind == "pressed")
    page.mouse(kind, *at, button="left", buttons=held, clickCount=1)


def test_it_opens_without_a_sound_and_asks_for_nothing(opened, built):
    opened.evaluate(DRAW_ALL)
    opened.evaluate(CHOOSE_ALL)
    opened.evaluate(OPEN_ALL)
    found = opened.evaluate("[...document.querySelectorAll('figure')].map((one) => one.id)")
    assert set(found) == {f"figure-1-{name}" for name in FIRST_REGIME} | {
        f"figure-2-{name}" for name in OF_EVERY_REGIME
    }
    drawn = opened.evaluate("document.querySelectorAll('.plot .main-svg:first-child').length")
    assert drawn == len(found)
    assert opened.problems == []
    assert opened.requests == [built.path.as_uri()]
    assert built.path.stat().st_size < 10e6


@pytest.mark.parametrize(
    ("fault", "said", "asked"),
    [
        ('<script>console.error("planted")</script>', "planted", []),
        ('<script>throw new Error("planted")</script>', "planted", []),
        ('<script>Promise.reject(new Error("planted"))</script>', "planted", []),
        ('<img src="http://a.invalid/b.png" alt="">', "ERR_", ["http://a.invalid/b.png"]),
        ('<script src="data.js"></script>', "ERR_", ["data.js"]),
    ],
)
def test_a_planted_fault_is_seen(browser, tmp_path, fault, said, asked):
    path = tmp_path / "index.html"
    path.write_text(f"<!DOCTYPE html><title>planted</title>{fault}", encoding="utf-8")
    with browser.page(path) as page:
        page.wait("performance.now() > 300")
        assert any(said in one for one in page.problems)
        assert page.requests == [urljoin(path.as_uri(), name) for name in ("", *asked)]


def test_the_policy_of_the_page_refuses_what_is_planted_in_it(browser, built, tmp_path):
    path = tmp_path / "index.html"
    text, _, _ = built.path.read_text(encoding="utf-8").rpartition("</body>")
    planted = '<img src="http://a.invalid/b.png" alt=""></body></html>'
    path.write_text(text + planted, encoding="utf-8")
    with browser.page(path) as page:
        page.wait("performance.now() > 300")
        assert page.refusals == ["csp"]
        assert any("Content Security Policy" in one for one in page.problems)


def test_its_words_are_those_of_the_document(opened, built):
    assert opened.evaluate("document.querySelector('h1').innerText") == built.verdict["answer"]
    rows = opened.evaluate(
        """[...document.querySelectorAll(".verdicts > tbody > tr:not(.why)")].map((row) =>
          [...row.cells].map((cell) => cell.innerText.trim()))"""
    )
    results = [
        result for tier in TIERS for result in built.verdict["verdicts"] if result["tier"] == tier
    ]
    assert len(rows) == len(results) >= 9
    assert {result["tier"] for result in results} == set(TIERS)
    for row, result in zip(rows, results, strict=True):
        policy, regime, tier, verdict, gain, p, _ = row
        assert [policy, regime, tier] == [
            result["policy"],
            result["regime"],
            TIERS[result["tier"]],
        ]
        assert re.search(r"[A-Z]{4,}", verdict)[0] == result["verdict"]
        if result["gain"] is None or result["verdict"] == "REFUSED":
            assert gain == "–"
            continue
        assert float(gain.split()[0].replace("\u2212", "-")) == pytest.approx(
            result["gain"]["points"], abs=0.00501
        )
        claim = result["harm" if result["verdict"] == "HARMFUL" else "claim"]
        assert claim is not None
        assert float(p.split()[0]) == pytest.approx(claim["p_holm"], rel=0.05)
    said = opened.evaluate(
        "[...document.querySelectorAll('.why > td > p:first-child')].map((one) => one.innerText)"
    )
    assert said == [" ".join(result["sentence"].split()) for result in results]


def test_dragging_zooms_the_timeline_and_the_client_with_it(opened, built):
    opened.evaluate(DRAW_ALL)
    show(opened, TIMELINE)
    windows = [
        (base, base + length)
        for trace in built.spec(TIMELINE)["data"]
        if trace["type"] == "bar"
        for base, length in zip(trace["base"], trace["x"], strict=True)
    ]
    assert shown(opened, TIMELINE) == [0, HORIZON_S]
    assert (min(ticks(opened, TIMELINE)), max(ticks(opened, TIMELINE))) == (0, HORIZON_S)
    assert bars(opened) == len(windows)
    start, end = (point(opened, TIMELINE, x, 2.4, "yaxis3") for x in (30, 60))
    opened.mouse("moved", *start)
    press_button(opened, "pressed", start)
    for share in (0.5, 1.0):
        at = [a + share * (b - a) for a, b in zip(start, end, strict=True)]
        opened.mouse("moved", *at, button="left", buttons=1)
    press_button(opened, "released", end)
    wait_for_range(opened, TIMELINE, 30, 60, within=0.5)
    low, high = shown(opened, TIMELINE)
    wait_for_range(opened, CLIENT, low, high)
    for figure in (TIMELINE, CLIENT):
        assert all(29 < tick < 61 for tick in ticks(opened, figure))
    inside = [1 for begin, until in windows if until > low and begin < high]
    assert bars(opened) == len(inside) < len(windows)
    # so soon after the drag the first click would count as the second of a pair
    opened.evaluate("new Promise((then) => setTimeout(then, 500))")
    opened.double_click(*point(opened, TIMELINE, 45, 2.4, "yaxis3"))
    for figure in (TIMELINE, CLIENT):
        wait_for_range(opened, figure, 0, HORIZON_S)
    assert opened.problems == []


def test_keys_zoom_and_pan_the_timeline(opened):
    opened.evaluate(DRAW_ALL)
    opened.evaluate(f"document.querySelector('#{TIMELINE} .plot').focus()")
    for key, low, high in (
        ("+", 25, 75),
        ("ArrowRight", 35, 85),
        ("ArrowLeft", 25, 75),
        ("-", 0, 100),
        ("+", 25, 75),
        ("0", 0, 100),
    ):
        opened.press(key)
        for figure in (TIMELINE, CLIENT):
            wait_for_range(opened, figure, low, high)


def test_hovering_says_what_stands_there(opened, built):
    opened.evaluate(DRAW_ALL)
    show(opened, TIMELINE)
    said = (
        f"[...document.querySelectorAll('#{TIMELINE} .hoverlayer .hovertext')]"
        ".map((text) => text.textContent)"
    )
    seconds = np.bincount(built.arrivals_s.astype(int))
    busiest, arrived = int(seconds.argmax()), seconds.max()
    at = point(opened, TIMELINE, busiest, arrived, "yaxis")
    opened.mouse("moved", at[0] - 40, at[1])
    opened.mouse("moved", *at)
    opened.wait(f"{said}.includes('{busiest} s: {arrived:.2f} arrivals/s')")
    quiet = opened.evaluate(
        f"""(() => {{
          const plot = document.querySelector("#{TIMELINE} .plot");
          const centre = (one) => {{
            const {{ left, top, width, height }} = one.getBoundingClientRect();
            return [left + width / 2, top + height / 2];
          }};
          const marks = [...plot.querySelectorAll(".scatterlayer .points path")].map(centre);
          return [...plot.querySelectorAll(".barlayer .point path")].map(centre).find(([x, y]) =>
            marks.every(([a, b]) => Math.hypot(a - x, b - y) > 30));
        }})()"""
    )
    opened.mouse("moved", quiet[0] - 5, quiet[1])
    opened.mouse("moved", *quiet)
    opened.wait(f"{said}.some((text) => text.startsWith('merge '))")
    (found,) = opened.evaluate(said)
    wanted = {
        text
        for trace in built.spec(TIMELINE)["data"]
        if trace["type"] == "bar"
        for text in trace["hovertext"]
    }
    assert found in wanted


def test_tab_reaches_every_control_in_order_and_shows_where_it_is(opened):
    opened.evaluate(DRAW_ALL)
    number = opened.evaluate(STOPS)
    found = []
    for _ in range(number):
        opened.press("Tab", 9)
        found.append(opened.evaluate(FOCUSED))
    assert [one["place"] for one in found] == list(range(number))
    assert [one for one in found if not one["name"]] == []
    assert [one for one in found if one["outline"] < 1] == []
    assert found[0]["name"] == "Skip to the verdicts"
    plots = opened.evaluate(
        "[...document.querySelectorAll('.plot')].map((plot) => stops.indexOf(plot))"
    )
    assert min(plots) > 0


@pytest.mark.parametrize(
    ("scheme", "surface"), [("light", "rgb(252, 251, 248)"), ("dark", "rgb(20, 24, 29)")]
)
def test_every_word_can_be_read_in_light_and_dark(opened, scheme, surface):
    opened.media(prefers_color_scheme=scheme)
    opened.evaluate(DRAW_ALL)
    opened.evaluate(OPEN_ALL)
    root = "getComputedStyle(document.documentElement).backgroundColor"
    assert opened.evaluate(root) == surface
    assert settled(opened, FAINT) == []


def test_a_change_of_scheme_redraws_the_figures(opened):
    opened.media(prefers_color_scheme="light")
    opened.evaluate(DRAW_ALL)
    fill = f"getComputedStyle(document.querySelector('#{TIMELINE} .xtick text')).fill"
    assert opened.evaluate(fill) == "rgb(93, 102, 115)"
    opened.media(prefers_color_scheme="dark")
    opened.wait(f"{fill} === 'rgb(160, 169, 180)'")


def test_paper_is_light_shows_every_figure_and_unfolds_all(opened):
    opened.media(prefers_color_scheme="dark")
    opened.evaluate(
        """addEventListener("beforeprint", () => {
          const style = getComputedStyle(document.documentElement);
          window.printed = {
            folded: document.querySelectorAll("details:not([open])").length,
            surface: style.getPropertyValue("--surface").trim(),
            plots: document.querySelectorAll(".plot").length,
            drawn: [...document.querySelectorAll(".plot")].filter((plot) =>
              plot.querySelector(".main-svg")).length,
          };
        })"""
    )
    folded = opened.evaluate("document.querySelectorAll('details:not([open])').length")
    assert folded > 0
    document = base64.b64decode(opened.call("Page.printToPDF")["data"])
    assert document.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", document)) > 5
    printed = opened.evaluate("window.printed")
    assert printed.pop("plots") == printed.pop("drawn") == len(FIRST_REGIME) + len(OF_EVERY_REGIME)
    assert printed == {"folded": 0, "surface": "#fcfbf8"}
    assert opened.evaluate("document.querySelectorAll('details:not([open])').length") == folded
    assert opened.problems == []


def test_nothing_but_the_table_of_replays_is_wider_than_paper(opened):
    opened.size(718, 1000)  # A4 less the margins, CSS pixels
    opened.media("print")
    opened.evaluate(OPEN_ALL)
    wide = opened.evaluate(
        """[...document.querySelectorAll("main > *, main .scroll, main table, pre")]
          .filter((one) => !one.closest(".wide") && one.getBoundingClientRect().right > 718)
          .map((one) => (one.closest("[aria-label]") ?? one).ariaLabel ?? one.className)"""
    )
    assert wide == []
    table = "getComputedStyle(document.querySelector('.verdicts')).display"
    assert opened.evaluate(table) == "table"  # narrow as paper is, it is no phone
    for hidden in ("nav.top", ".variants", ".skip"):
        assert opened.evaluate(f"!document.querySelector('{hidden}').checkVisibility()"), hidden


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_scrolls_one_way_only(browser, built, width):
    with browser.page(built.path, width, 844, phone=True) as page:
        page.evaluate(DRAW_ALL)
        page.evaluate(OPEN_ALL)
        assert page.evaluate("innerWidth") == width
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        beyond = settled(
            page,
            f"""[...document.querySelectorAll(".plot .main-svg")]
              .filter((svg) => svg.getBoundingClientRect().right > {width})
              .map((svg) => svg.closest("figure").id)""",
        )
        assert beyond == []
        drags = page.evaluate(
            "[...document.querySelectorAll('.plot')].map((plot) => plot._fullLayout.dragmode)"
        )
        assert set(drags) == {False}  # a finger scrolls the page, it does not zoom a figure


@pytest.mark.parametrize(("width", "phone"), [(1280, False), (390, True)])
def test_no_two_labels_of_a_figure_meet(browser, built, width, phone):
    with browser.page(built.path, width, phone=phone) as page:
        page.evaluate(DRAW_ALL)
        assert settled(page, MEETING) == []


def test_figures_are_named_for_those_who_do_not_see_them(opened):
    opened.evaluate(DRAW_ALL)
    nodes = opened.call("Accessibility.getFullAXTree")["nodes"]
    named = {
        (node["role"]["value"], node["name"]["value"])
        for node in nodes
        if not node["ignored"] and node.get("name", {}).get("value")
    }
    figures = opened.evaluate(
        """[...document.querySelectorAll("figure")].map((one) => [
          one.querySelector("h3").textContent, one.querySelector(".plot").ariaLabel])"""
    )
    assert len(figures) == len(FIRST_REGIME) + len(OF_EVERY_REGIME)
    for title, alternative in figures:
        assert ("figure", title) in named
        assert ("group", alternative) in named
        assert len(alternative) > 40
    images = opened.evaluate("document.querySelectorAll('img:not([alt])').length")
    assert images == 0
