"""Builds the page: one file, no network, an answer first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from safesync.protocol.blocks import CONTROL, NOSYNC, NOT_POLICIES
from safesync.protocol.evidence import TIERS
from safesync.protocol.gates import OVERLAP_TIER, count
from safesync.report import tables
from safesync.report.figures.base import Colours, Figure
from safesync.report.figures.decomposition import decomposition
from safesync.report.figures.envelope import envelope
from safesync.report.figures.forecast import forecast_figure
from safesync.report.figures.latency import latency_cdf
from safesync.report.figures.null import null_figure
from safesync.report.figures.timeline import timeline
from safesync.report.figures.windows import windows_figure
from safesync.report.replay import Replay, captures
from safesync.report.wording import FILTERS
from safesync.tables.atomic import replacing
from safesync.tables.overlap import OVERLAP

_REPLAY = ("tier", "regime", "seed", "role", "policy", "draw", "budget")


@dataclass(frozen=True)
class Section:
    """One regime of the page."""

    regime: str
    kind: str
    threshold: Mapping
    tier: str
    rows: list[dict]
    rows_left_out: int
    validity: dict
    costs: list[dict]
    set_aside: int
    figures: list[Figure]
    overlap: list[dict]
    inert: list[dict]
    overlap_figures: list[Figure]


@dataclass(frozen=True)
class _Study:
    """What every section shares."""

    verdict: Mapping
    policies: list[str]
    colours: Colours
    merge_s: float
    merge_tolerance_s: float


def build(
    path: str | Path,
    *,
    verdict: Mapping,
    scores: pd.DataFrame,
    replays: Sequence[Replay],
    thresholds: Mapping[str, Mapping],
    merge_s: float,
    merge_tolerance_s: float,
    config_text: str,
    warnings: Sequence[str] = (),
    overlap: pd.DataFrame | None = None,
) -> None:
    """Write the report to ``path``, through a temporary name and a rename.

    ``verdict``: the document that ``judge`` returned. ``scores``: every row of SCORES of the run.
    ``replays``: those whose tables are at hand (a tier may have none: it is then judged but not
    drawn). ``thresholds``: regime -> threshold document. ``merge_s``, ``merge_tolerance_s``:
    planned length of a merge and how far it may be off plan, seconds. ``config_text``: the exact
    config. ``warnings``: sentences of earlier stages. ``overlap``: the rows of OVERLAP that the
    verdicts rest on; None for a run without that tier.
    """
    scores = scores.reset_index(drop=True)  # rows of several files may share their labels
    overlap = OVERLAP.empty() if overlap is None else overlap
    policies = _policies(verdict, [*scores["policy"], *overlap["policy"]])
    study = _Study(
        verdict=verdict,
        policies=policies,
        colours=Colours([policy for policy in policies if policy not in NOT_POLICIES]),
        merge_s=merge_s,
        merge_tolerance_s=merge_tolerance_s,
    )
    sections = [
        _section(
            study,
            regime,
            scores[scores["regime"] == regime],
            [replay for replay in replays if replay.regime == regime],
            thresholds[regime],
            overlap[(overlap["regime"] == regime) & (overlap["role"] == "judge")],
        )
        for regime in sorted(scores["regime"].unique())
    ]
    text = (
        _environment()
        .get_template("index.html.j2")
        .render(
            verdict=verdict,
            sections=sections,
            machines=tables.machines(replays),
            config_text=config_text,
            warnings=list(warnings),
            plotly_js=Markup(get_plotlyjs()),
        )
    )
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("safesync.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment


def _policies(verdict: Mapping, found: Sequence[str]) -> list[str]:
    """Return all policies in the order of the page: claims, the others, captures and controls."""
    names = list(dict.fromkeys([*verdict["claims"], *sorted(set(found))]))
    return sorted(names, key=lambda name: (name in NOT_POLICIES, name not in verdict["claims"]))


def _section(
    study: _Study,
    regime: str,
    scores: pd.DataFrame,
    replays: Sequence[Replay],
    threshold: Mapping,
    overlap: pd.DataFrame,
) -> Section:
    """Return the section of one regime; traces come from the strongest tier that has any."""
    tiers = {replay.tier for replay in replays} or set(scores["tier"])
    tier = next(tier for tier in TIERS if tier in tiers)
    here = [replay for replay in replays if replay.tier == tier]
    aside = tables.set_aside(scores)
    rows, left_out = tables.replay_rows(scores, study.policies)
    protocol = study.verdict["protocol"]
    return Section(
        regime=regime,
        kind=str(scores["kind"].iloc[0]),
        threshold=threshold,
        tier=tier,
        rows=rows,
        rows_left_out=left_out,
        validity=tables.validity(
            scores[scores["tier"] == tier],
            here,
            lateness_limit_s=protocol["lateness_limit"] * threshold["threshold_s"],
            loop_lag_limit_s=protocol["loop_lag_limit_s"],
            merge_tolerance_s=study.merge_tolerance_s,
            merge_s=study.merge_s,
        ),
        costs=tables.merge_costs(here, study.policies),
        figures=[
            *_trace_figures(study, here, threshold, aside),
            *_score_figures(study, regime, scores[scores["role"] == "judge"], aside),
        ],
        set_aside=len(aside),
        overlap=tables.overlap_rows(overlap, study.policies),
        inert=tables.inert_signals(overlap),
        overlap_figures=_overlap_figures(study, regime, overlap),
    )


def _trace_figures(
    study: _Study, found: Sequence[Replay], threshold: Mapping, aside: pd.DataFrame
) -> list[Figure]:
    """Return the figures that need requests and merges, from replays of one (tier, regime)."""
    without = set(aside[list(_REPLAY)].itertuples(index=False, name=None))
    replays = [r for r in found if tuple(getattr(r, name) for name in _REPLAY) not in without]
    judged = [replay for replay in replays if replay.role == "judge"]
    judged_out = sum(replay.role == "judge" for replay in found) - len(judged)
    nosync = {seed: replay for (_, _, seed), replay in captures(replays).items()}
    slo = {"metric": threshold["metric"], "threshold_s": threshold["threshold_s"]}
    look = (study.policies, study.colours)
    drawn = [
        (timeline(judged, nosync, *look, merge_s=study.merge_s, **slo), judged_out),
        (
            windows_figure(replays, nosync, *look, merge_s=study.merge_s, **slo),
            len(found) - len(replays),
        ),
        (latency_cdf(judged, *look, **slo), judged_out),
    ]
    return [_noted(figure, _left_out(number)) for figure, number in drawn if figure]


def _left_out(number: int) -> list[str]:
    """Return the note on the replays that a figure leaves out; no note on none."""
    verb = "is" if number == 1 else "are"
    why = "invalid, or of a block with an invalid capture"
    return [f"{count(number, 'replay')} {verb} left out: {why}."] if number else []


def _noted(figure: Figure, notes: Sequence[str]) -> Figure:
    return replace(figure, notes=[*figure.notes, *notes])


def _score_figures(
    study: _Study, regime: str, scores: pd.DataFrame, aside: pd.DataFrame
) -> list[Figure]:
    """Return the figures that scores and verdicts suffice for, a variant per tier."""
    envelopes, decompositions = [], []
    for tier in [tier for tier in TIERS if tier in set(scores["tier"])]:
        out = scores.index.intersection(aside.index[aside["tier"] == tier])
        strip = envelope(scores.drop(out), tier, regime, study.policies, study.colours)
        notes = [f"{tier}: {note}" for note in _left_out(len(out))]
        envelopes.append((tier, strip and _noted(strip, notes)))
        decompositions.append((tier, _decomposition(study, regime, tier, scores.loc[out])))
    return [figure for figure in map(_by_tier, (envelopes, decompositions)) if figure]


def _overlap_figures(study: _Study, regime: str, overlap: pd.DataFrame) -> list[Figure]:
    """Return the figures of the overlap tier, from judge rows of OVERLAP of one regime."""
    look = (study.policies, study.colours)
    split = _decomposition(study, regime, OVERLAP_TIER, None)
    drawn = [
        null_figure(overlap, *look),
        forecast_figure(overlap, *look),
        split and replace(split, name="overlap-decomposition"),
    ]
    return [figure for figure in drawn if figure]


def _decomposition(
    study: _Study, regime: str, tier: str, aside: pd.DataFrame | None
) -> Figure | None:
    """Return the split of the effects that stand; ``aside``: the tier's rows that do not count."""
    results = [*study.verdict["verdicts"], *study.verdict["described"]]
    here = [
        r for r in results if r["regime"] == regime and r["tier"] == tier and r["decomposition"]
    ]
    kept = [r for r in here if r["verdict"] != "REFUSED" and not _rests_on(r, aside)]
    figure = decomposition(kept, study.colours)
    left = [r["policy"] for r in here if r not in kept]
    if figure is None or not left:
        return figure
    return _noted(
        figure, [f"{tier}: left out as refused or resting on invalid replays: {', '.join(left)}."]
    )


def _rests_on(result: Mapping, rows: pd.DataFrame | None) -> bool:
    """Return whether the effect of ``result`` was computed from any of ``rows``."""
    if rows is None or rows.empty:
        return False
    baselines = {part["baseline"] for part in result["decomposition"]}
    rests = False
    for block in result["blocks"]:
        of = rows[rows["seed"] == block["seed"]]
        draws = (of["policy"] == CONTROL) & (of["budget"] == block["budget"])
        others = of["policy"].isin({result["policy"], NOSYNC, *baselines})
        rests = rests or bool((draws | others).any())
    return rests


def _by_tier(figures: Sequence[tuple[str, Figure | None]]) -> Figure | None:
    """Return one figure whose variants are the tiers of ``figures``; None when all are None."""
    found = [(tier, figure) for tier, figure in figures if figure]
    if not found:
        return None
    return replace(
        found[0][1],
        alt=" ".join(f"{tier}: {figure.alt}" for tier, figure in found),
        notes=[note for _, figure in found for note in figure.notes],
        variants=[replace(figure.variants[0], label=tier) for tier, figure in found],
    )
