"""Builds the page: one file, no network, an answer first."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from safesync.protocol.blocks import NOT_POLICIES
from safesync.protocol.evidence import TIERS
from safesync.protocol.gates import OVERLAP_TIER
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
from safesync.tables.overlap import OVERLAP


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
    path = Path(path)
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
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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
            *_trace_figures(study, here, threshold),
            *_score_figures(study, regime, scores[scores["role"] == "judge"]),
        ],
        overlap=tables.overlap_rows(overlap, study.policies),
        inert=tables.inert_signals(overlap),
        overlap_figures=_overlap_figures(study, regime, overlap),
    )


def _trace_figures(study: _Study, replays: Sequence[Replay], threshold: Mapping) -> list[Figure]:
    """Return the figures that need requests and merges, from replays of one (tier, regime)."""
    judged = [replay for replay in replays if replay.role == "judge"]
    nosync = {seed: replay for (_, _, seed), replay in captures(replays).items()}
    slo = {"metric": threshold["metric"], "threshold_s": threshold["threshold_s"]}
    look = (study.policies, study.colours)
    drawn = [
        timeline(judged, nosync, *look, merge_s=study.merge_s, **slo),
        windows_figure(replays, nosync, *look, merge_s=study.merge_s, **slo),
        latency_cdf(judged, *look, **slo),
    ]
    return [figure for figure in drawn if figure]


def _score_figures(study: _Study, regime: str, scores: pd.DataFrame) -> list[Figure]:
    """Return the figures that scores and verdicts suffice for, a variant per tier."""
    envelopes, decompositions = [], []
    for tier in [tier for tier in TIERS if tier in set(scores["tier"])]:
        envelopes.append((tier, envelope(scores, tier, regime, study.policies, study.colours)))
        decompositions.append((tier, _decomposition(study, regime, tier)))
    return [figure for figure in map(_by_tier, (envelopes, decompositions)) if figure]


def _overlap_figures(study: _Study, regime: str, overlap: pd.DataFrame) -> list[Figure]:
    """Return the figures of the overlap tier, from judge rows of OVERLAP of one regime."""
    look = (study.policies, study.colours)
    split = _decomposition(study, regime, OVERLAP_TIER)
    drawn = [
        null_figure(overlap, *look),
        forecast_figure(overlap, *look),
        split and replace(split, name="overlap-decomposition"),
    ]
    return [figure for figure in drawn if figure]


def _decomposition(study: _Study, regime: str, tier: str) -> Figure | None:
    results = [*study.verdict["verdicts"], *study.verdict["described"]]
    here = [r for r in results if r["regime"] == regime and r["tier"] == tier]
    return decomposition(here, study.colours)


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
