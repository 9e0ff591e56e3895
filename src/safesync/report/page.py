"""Builds the page: one file, no network, an answer first."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from safesync.protocol.blocks import CONTROL, NOSYNC, is_policy, judged_policy, told_apart
from safesync.protocol.evidence import TIERS
from safesync.protocol.gates import EMULATED_TIER, OVERLAP_TIER, REAL_TIER, count
from safesync.protocol.validity import Limits
from safesync.report import tables
from safesync.report.arrivals import Origin, origin
from safesync.report.emulated import errors
from safesync.report.figures.agreement import agreement_figure
from safesync.report.figures.base import Colours, Figure
from safesync.report.figures.client import client_figure
from safesync.report.figures.decomposition import decomposition
from safesync.report.figures.envelope import COLUMNS, envelope
from safesync.report.figures.forecast import forecast_figure
from safesync.report.figures.latency import latency_cdf
from safesync.report.figures.null import null_figure
from safesync.report.figures.timeline import timeline
from safesync.report.figures.training import training_figure
from safesync.report.figures.transfer import transfer_figure
from safesync.report.figures.windows import windows_figure
from safesync.report.merges import MergePlan, merge_costs
from safesync.report.published import Comparison, compare
from safesync.report.replay import Replay, captures
from safesync.report.styles import style_rows
from safesync.report.training import TrainingRun, final_losses, parity_gates
from safesync.report.wording import FILTERS
from safesync.tables.agreement import AGREEMENT
from safesync.tables.atomic import replacing
from safesync.tables.overlap import OVERLAP

_REPLAY = ("tier", "regime", "seed", "role", "policy", "draw", "budget")


@dataclass(frozen=True)
class Training:
    """The training runs of one regime: their curves, final losses and parity gates."""

    figure: Figure
    table: dict
    gates: list[dict]


@dataclass(frozen=True)
class Section:
    """One regime of the page."""

    regime: str
    kind: str
    results: list[dict]
    threshold: Mapping
    tier: str
    origin: Origin | None
    background: str
    comparison: Comparison | None
    rows: list[dict]
    rows_left_out: int
    validity: dict
    load_match: list[dict]
    merge: MergePlan
    costs: list[dict]
    cost: dict | None
    styles: list[dict]
    set_aside: int
    figures: list[Figure]
    overlap: list[dict]
    alike: list[list[str]]
    inert: list[dict]
    overlap_figures: list[Figure]
    emulated: Mapping | None
    emulator_figures: list[Figure]
    training: Training | None


@dataclass(frozen=True)
class _Study:
    """What every section shares."""

    verdict: Mapping
    policies: list[str]
    colours: Colours
    merges: Mapping[str, MergePlan]
    horizon_s: float
    arrivals: Sequence[Mapping]
    backgrounds: Mapping[str, Mapping]
    published: pd.DataFrame | None
    agreement: pd.DataFrame
    transfers: Mapping[str, Mapping]
    trainings: Sequence[TrainingRun]
    emulated: pd.DataFrame

    def results(self, regime: str, tier: str | None = None) -> list[Mapping]:
        """Return the results of a regime, claimed and described; ``tier``: of this one alone."""
        return [
            result
            for result in [*self.verdict["verdicts"], *self.verdict["described"]]
            if result["regime"] == regime and tier in (None, result["tier"])
        ]

    def limits(self, regime: str, threshold: Mapping) -> Limits:
        """Return what a measurement of a regime with this threshold may be off by."""
        protocol = self.verdict["protocol"]
        return Limits(
            lateness_s=protocol["lateness_limit"] * threshold["threshold_s"],
            loop_lag_s=protocol["loop_lag_limit_s"],
            merge_tolerance_s=self.merges[regime].tolerance_s,
        )


def build(
    path: str | Path,
    *,
    verdict: Mapping,
    scores: pd.DataFrame,
    replays: Sequence[Replay],
    thresholds: Mapping[str, Mapping],
    merges: Mapping[str, MergePlan],
    horizon_s: float,
    config_text: str,
    gaps_s: tuple[float, float] | None = None,
    rules: Mapping[str, str] | None = None,
    warnings: Sequence[str] = (),
    overlap: pd.DataFrame | None = None,
    arrivals: Sequence[Mapping] = (),
    backgrounds: Mapping[str, Mapping] | None = None,
    published: pd.DataFrame | None = None,
    agreement: pd.DataFrame | None = None,
    transfers: Mapping[str, Mapping] | None = None,
    trainings: Sequence[TrainingRun] = (),
    emulated: pd.DataFrame | None = None,
) -> None:
    """Write the report to ``path``, through a temporary name and a rename.

    ``verdict``: the document that ``judge`` returned. ``scores``: every row of SCORES of the run;
    the emulated ones may be left to ``emulated``.
    ``replays``: those whose tables are at hand (a tier may have none: it is then judged but not
    drawn). ``thresholds``: regime -> threshold document, in the order of the page. ``merges``:
    regime -> the merges that were asked for. ``horizon_s``: length of every trace, seconds.
    ``config_text``: the exact config. ``gaps_s``: the corridor's shortest and longest gap, seconds;
    None: not said. ``rules``: policy id -> a sentence on what it does. ``warnings``: sentences of
    earlier stages. ``overlap``: the rows of OVERLAP that the verdicts rest on; None for a run
    without that tier. ``arrivals``: the metadata of every ARRIVALS table, with its number of rows
    as ``requests``. ``backgrounds``: regime -> the config's section on what runs beside it.
    ``published``: the study's figures; None: nothing to compare with. ``agreement``: the AGREEMENT
    rows of all regimes; None: there is none. ``transfers``: regime -> the document of gate 2.
    ``trainings``: training runs on the schedules of the run. ``emulated``: the judged rows of the
    emulated tier, which are many; ``envelope.COLUMNS`` of them suffice. None: that tier is shown by
    its verdicts.
    """
    # rows of several files may share their labels
    scores = told_apart(scores.reset_index(drop=True))
    overlap = OVERLAP.empty() if overlap is None else overlap
    emulated = pd.DataFrame(columns=COLUMNS) if emulated is None else emulated
    found = (scores["policy"], overlap["policy"], emulated["policy"])
    policies = _policies(verdict, [name for names in found for name in names.unique()])
    study = _Study(
        verdict=verdict,
        policies=policies,
        colours=Colours(list(filter(is_policy, policies))),
        merges=merges,
        horizon_s=horizon_s,
        arrivals=arrivals,
        backgrounds=backgrounds or {},
        published=published,
        agreement=AGREEMENT.empty() if agreement is None else agreement,
        transfers=transfers or {},
        trainings=trainings,
        emulated=emulated,
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
        for regime in thresholds
        if regime in set(scores["regime"])
    ]
    text = (
        _environment()
        .get_template("index.html.j2")
        .render(
            verdict=verdict,
            sections=sections,
            tiers=TIERS,
            emulated={found["regime"]: found for found in verdict["emulated"]},
            errors=errors,
            gaps_s=gaps_s,
            merge_s=next(iter(merges.values())).merge_s,
            rules=rules or {},
            setting=tables.setting(replays, horizon_s),
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
    return sorted(names, key=lambda name: (not is_policy(name), name not in verdict["claims"]))


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
    measured = scores[scores["tier"] == tier]
    rows, left_out = tables.replay_rows(measured, study.policies)
    merge = study.merges[regime]
    costs, cost = merge_costs(here, study.policies, merge)
    kind = str(scores["kind"].iloc[0])
    return Section(
        regime=regime,
        kind=kind,
        results=[r for r in study.verdict["verdicts"] if r["regime"] == regime],
        threshold=threshold,
        tier=tier,
        origin=origin([facts for facts in study.arrivals if facts["regime"] == regime]),
        background=tables.background(study.backgrounds.get(regime, {})),
        comparison=_comparison(study, regime, kind, here, threshold, aside),
        rows=rows,
        rows_left_out=left_out + len(scores) - len(measured),
        validity=tables.validity(measured, here, study.limits(regime, threshold), merge.merge_s),
        load_match=tables.load_match(measured),
        merge=merge,
        costs=costs,
        cost=cost,
        styles=_styles(study, regime, here, aside, measured),
        figures=[
            *_trace_figures(study, regime, here, threshold, aside, measured),
            *_score_figures(
                study, regime, scores[scores["role"] == "judge"], aside, tables.oracles(overlap)
            ),
        ],
        set_aside=len(aside),
        overlap=tables.overlap_rows(overlap, study.policies),
        alike=tables.alike_policies(overlap, study.policies),
        inert=tables.inert_signals(overlap),
        overlap_figures=_overlap_figures(study, regime, overlap),
        emulated=_emulated(study, regime),
        emulator_figures=_emulator_figures(study, regime, aside),
        training=_training(study, regime),
    )


def _emulated(study: _Study, regime: str) -> Mapping | None:
    """Return what the emulated tier of a regime rests on; None for a run without that tier."""
    found = [one for one in study.verdict["emulated"] if one["regime"] == regime]
    return found[0] if found else None


def _emulator_figures(study: _Study, regime: str, aside: pd.DataFrame) -> list[Figure]:
    """Return how the emulator stands to the real sidecar: replay by replay, and by effect.

    ``aside``: the SCORES rows that do not count.
    """
    key = ["seed", "policy", "draw", "budget"]
    rows = study.agreement[study.agreement["regime"] == regime]
    real = aside.loc[aside["tier"] == REAL_TIER, key]
    replays = pd.MultiIndex.from_frame(rows[key].assign(policy=rows["policy"].map(judged_policy)))
    out = replays.isin(pd.MultiIndex.from_frame(real))
    plot = agreement_figure(rows[~out], study.policies, study.colours)
    notes = _left_out(len(set(replays[out])))
    if notes:
        notes.append("The agreement that is stated counts every replay.")
    document = study.transfers.get(regime)
    drawn = [
        plot and _noted(plot, notes),
        document and transfer_figure(document, study.verdict["protocol"]["transfer_tolerance"]),
    ]
    return [figure for figure in drawn if figure]


def _training(study: _Study, regime: str) -> Training | None:
    """Return the training runs on the schedules of a regime; None without one."""
    runs = [run for run in study.trainings if run.facts["regime"] == regime]
    figure = training_figure(runs, study.policies, study.colours)
    if figure is None:
        return None
    return Training(
        figure,
        final_losses(runs, study.policies),
        parity_gates([r for r in study.verdict["verdicts"] if r["regime"] == regime]),
    )


def _styles(
    study: _Study,
    regime: str,
    found: Sequence[Replay],
    aside: pd.DataFrame,
    scores: pd.DataFrame,
) -> list[dict]:
    """Return the table of merge styles, from the judged replays that count.

    ``found`` and ``scores``: the replays of one (tier, regime) and their rows.
    """
    counted = scores.drop(scores.index.intersection(aside.index))
    return style_rows(
        [replay for replay in _counting(found, aside) if replay.role == "judge"],
        counted[counted["role"] == "judge"],
        [run for run in study.trainings if run.facts["regime"] == regime],
        study.policies,
        study.merges[regime],
    )


def _counting(found: Sequence[Replay], aside: pd.DataFrame) -> list[Replay]:
    """Return the replays of which no score row is set aside."""
    without = set(aside[list(_REPLAY)].itertuples(index=False, name=None))
    return [r for r in found if tuple(getattr(r, name) for name in _REPLAY) not in without]


def _comparison(
    study: _Study,
    regime: str,
    kind: str,
    found: Sequence[Replay],
    threshold: Mapping,
    aside: pd.DataFrame,
) -> Comparison | None:
    """Return the regime beside the published study, from its judged replays that count."""
    if study.published is None:
        return None
    judged = [replay for replay in _counting(found, aside) if replay.role == "judge"]
    return compare(
        study.published,
        kind,
        judged,
        _captures(judged),
        study.policies,
        metric=threshold["metric"],
        threshold_s=threshold["threshold_s"],
        merge_s=study.merges[regime].merge_s,
    )


def _captures(replays: Sequence[Replay]) -> dict[int, Replay]:
    """Return seed -> capture, for replays of one (tier, regime)."""
    return {seed: replay for (_, _, seed), replay in captures(replays).items()}


def _trace_figures(
    study: _Study,
    regime: str,
    found: Sequence[Replay],
    threshold: Mapping,
    aside: pd.DataFrame,
    scores: pd.DataFrame,
) -> list[Figure]:
    """Return the figures that need requests and merges, from replays of one (tier, regime).

    ``scores``: the rows of the same replays, which tell the invalid ones.
    """
    replays = _counting(found, aside)
    judged = [replay for replay in replays if replay.role == "judge"]
    judged_out = sum(replay.role == "judge" for replay in found) - len(judged)
    nosync = _captures(replays)
    merge_s = study.merges[regime].merge_s
    invalid = scores.loc[~scores["valid"].astype(bool), ["seed", "policy", "draw", "budget"]]
    slo = {"metric": threshold["metric"], "threshold_s": threshold["threshold_s"]}
    look = (study.policies, study.colours)
    drawn = [
        (
            timeline(judged, nosync, *look, merge_s=merge_s, horizon_s=study.horizon_s, **slo),
            judged_out,
        ),
        (
            client_figure(
                found,
                study.policies,
                study.limits(regime, threshold),
                study.horizon_s,
                set(invalid.itertuples(index=False, name=None)),
            ),
            0,
        ),
        (
            windows_figure(replays, nosync, *look, merge_s=merge_s, **slo),
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
    study: _Study,
    regime: str,
    scores: pd.DataFrame,
    aside: pd.DataFrame,
    oracles: Collection[str],
) -> list[Figure]:
    """Return the figures that scores and verdicts suffice for, a variant per tier.

    ``oracles``: the policies that the envelope marks as optima.
    """
    envelopes, decompositions = [], []
    look = (study.policies, study.colours)
    judged = {result["tier"] for result in study.results(regime)} - {OVERLAP_TIER}
    for tier in [tier for tier in TIERS if tier in {*scores["tier"], *judged}]:
        out = scores.index.intersection(aside.index[aside["tier"] == tier])
        rows = study.emulated if tier == EMULATED_TIER and len(study.emulated) else scores.drop(out)
        strip = envelope(rows, tier, regime, *look, oracles)
        notes = [f"{tier}: {note}" for note in _left_out(len(out))]
        envelopes.append((tier, strip and _noted(strip, notes)))
        decompositions.append((tier, _decomposition(study, regime, tier, scores.loc[out])))
    return [figure for figure in map(_joined, (envelopes, decompositions)) if figure]


def _overlap_figures(study: _Study, regime: str, overlap: pd.DataFrame) -> list[Figure]:
    """Return the figures of the overlap tier, from judge rows of OVERLAP of one regime."""
    look = (study.policies, study.colours)
    baselines = dict.fromkeys(
        part["baseline"]
        for result in study.results(regime, OVERLAP_TIER)
        for part in result["decomposition"] or ()
    )
    split = _joined(
        [
            (f"against {name}", _decomposition(study, regime, OVERLAP_TIER, None, name))
            for name in baselines
        ]
    )
    drawn = [
        null_figure(overlap, *look),
        forecast_figure(overlap, *look),
        split and replace(split, name="overlap-decomposition"),
    ]
    return [figure for figure in drawn if figure]


def _decomposition(
    study: _Study,
    regime: str,
    tier: str,
    aside: pd.DataFrame | None,
    baseline: str | None = None,
) -> Figure | None:
    """Return the split of the effects that stand.

    ``aside``: the tier's rows that do not count. ``baseline``: against this one alone; None: all.
    """
    split = [
        r | {"decomposition": [p for p in parts if baseline in (None, p["baseline"])]}
        for r in study.results(regime, tier)
        if (parts := r["decomposition"])
    ]
    here = [r for r in split if r["decomposition"]]
    kept = [r for r in here if r["verdict"] != "REFUSED" and not _rests_on(r, aside)]
    figure = decomposition(kept, study.colours)
    if figure and kept[0]["caveat"]:
        figure = _noted(figure, [f"{tier}: {kept[0]['caveat']}"])
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


def _joined(figures: Sequence[tuple[str, Figure | None]]) -> Figure | None:
    """Return one figure of which each of ``figures`` is a variant; None when all are None."""
    found = [(label, figure) for label, figure in figures if figure]
    if not found:
        return None
    return replace(
        found[0][1],
        alt=" ".join(f"{label}: {figure.alt}" for label, figure in found),
        notes=list(dict.fromkeys(note for _, figure in found for note in figure.notes)),
        variants=[replace(figure.variants[0], label=label) for label, figure in found],
    )
