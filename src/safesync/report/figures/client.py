"""The client second by second: how late it sent, how long its loop stood, against the limits."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from safesync.protocol.blocks import NOSYNC
from safesync.protocol.gates import count
from safesync.protocol.percentiles import percentile
from safesync.protocol.validity import Limits, lateness_s
from safesync.report.figures.base import (
    Figure,
    Variant,
    axis,
    base_layout,
    legend_above,
    order,
    packed,
    plain,
    row_label,
)
from safesync.report.replay import Replay
from safesync.report.wording import milliseconds

MAX_BLOCKS = 6
MAX_ROWS = 12
MAX_BINS = 600
_NAMED = 2  # stretches that a strip's label names
_LISTED = 100  # stretches that the list below the figure names
_SHADED = 60  # stretches that a strip shades
_UNIT = 1000  # height of a row on the axis, which counts in whole numbers to save bytes
_LIMIT = 270  # height of the limit in its row
_TOP = 2  # limits that a strip shows; what is above is drawn there
_ROW_PX = 50
_MARGIN_PX = 100
_LATE, _LAG = "sent late", "loop lag"


@dataclass(frozen=True)
class Stretch:
    """Consecutive bins above their limit, [start, end) and the worst of them, seconds."""

    what: str
    start_s: float
    end_s: float
    worst_s: float


@dataclass(frozen=True)
class Series:
    """One quantity of a replay by bin, seconds; NaN in a bin without a value.

    ``worst_s``, ``p99_s``: shape (n,), its maximum and its p99 (nearest rank) in each bin.
    """

    what: str
    worst_s: np.ndarray
    p99_s: np.ndarray
    limit_s: float


def binned(
    at_s: np.ndarray, values_s: np.ndarray, horizon_s: float, width_s: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return maximum and p99 of the values in each bin of [0, ``horizon_s``), shape (bins,) each.

    ``at_s``: when each value stood, s. Values may be +infinity; NaN values and times outside are
    left out; a bin without any is NaN.
    """
    bins = int(np.ceil(horizon_s / width_s))
    kept = (at_s >= 0) & (at_s < horizon_s) & ~np.isnan(values_s)
    groups = pd.Series(values_s[kept]).groupby(np.floor(at_s[kept] / width_s).astype(int))
    worst, p99 = np.full(bins, np.nan), np.full(bins, np.nan)
    for place, group in groups:
        worst[place], p99[place] = group.max(), percentile(group, 0.99)
    return worst, p99


def stretches(series: Series, width_s: float) -> list[Stretch]:
    """Return the runs of consecutive bins whose p99 is above the limit."""
    over = np.concatenate([[False], series.p99_s > series.limit_s, [False]])
    edges = np.flatnonzero(over[1:] != over[:-1])
    return [
        Stretch(series.what, a * width_s, b * width_s, float(series.worst_s[a:b].max()))
        for a, b in zip(edges[::2], edges[1::2], strict=True)
    ]


def series_of(replay: Replay, limits: Limits, horizon_s: float, width_s: float) -> list[Series]:
    """Return the lateness of requests by scheduled arrival, and the lag of the client's loop."""
    requests, telemetry = replay.requests, replay.telemetry
    arrival_s = requests["arrival_s"].to_numpy(float)
    late = binned(arrival_s, lateness_s(requests), horizon_s, width_s)
    at_s, lag_s = telemetry["t_s"].to_numpy(float), telemetry["loop_lag_s"].to_numpy(float)
    # a row tells the worst since the one before it: bins without a row are in the next one's
    lag = (pd.Series(v).bfill().to_numpy() for v in binned(at_s, lag_s, horizon_s, width_s))
    return [Series(_LATE, *late, limits.lateness_s), Series(_LAG, *lag, limits.loop_lag_s)]


@dataclass(frozen=True)
class _Row:
    """One replay of a block: its strip, and the stretches of it that are out of limits."""

    replay: Replay
    series: list[Series]
    out: list[Stretch]
    invalid: bool

    @property
    def label(self) -> str:
        said = [f"{stretch.what} {_times(stretch)}" for stretch in self.out[:_NAMED]]
        said += [f"{len(self.out) - _NAMED} more"] * (len(self.out) > _NAMED)
        parts = [plain(self.replay.name), "\u2717 invalid" * self.invalid, ", ".join(said)]
        return " \u00b7 ".join(part for part in parts if part)


def client_figure(
    replays: Sequence[Replay],
    policies: Sequence[str],
    limits: Limits,
    horizon_s: float,
    invalid: Collection[tuple] = (),
) -> Figure | None:
    """Return the strips of one (tier, regime), a variant per block; None without a client.

    ``replays``: all of them, invalid ones too; those of an engine without a client have no
    telemetry and no strip. ``invalid``: (seed, policy, draw, budget) of invalid ones.
    """
    replays = [replay for replay in replays if replay.telemetry is not None]
    judged = {replay.seed for replay in replays if replay.role == "judge"}
    seeds = sorted({replay.seed for replay in replays}, key=lambda seed: (seed not in judged, seed))
    if not seeds:
        return None
    notes = []
    if len(seeds) > MAX_BLOCKS:
        notes.append(f"{MAX_BLOCKS} of {len(seeds)} blocks are shown.")
    width_s = max(1.0, float(np.ceil(horizon_s / MAX_BINS)))
    variants, details = [], []
    for seed in seeds[:MAX_BLOCKS]:
        here = order([replay for replay in replays if replay.seed == seed], policies)
        rows = [_row(replay, limits, horizon_s, width_s, invalid) for replay in here]
        shown = _shown(rows)
        if len(shown) < len(rows):
            notes.append(
                f"Seed {seed}: {len(shown)} of {len(rows)} replays are shown, those out of limits "
                "before others."
            )
        details += [
            f"seed {seed}, {row.replay.name}: {_words(stretch)}"
            for row in rows
            for stretch in row.out
        ]
        role = "" if seed in judged else " (calibration)"
        variants.append(Variant(f"seed {seed}{role}", *_strips(shown, horizon_s, width_s)))
    found = f"{len(details)} {'stretch' if len(details) == 1 else 'stretches'} out of limits"
    bin_name = "second" if width_s == 1 else f"{width_s:g} s"
    return Figure(
        name="client",
        title="Was the client on time?",
        caption=(
            f"One strip per replay, one value per {bin_name}: how late requests were sent (0 also "
            "where none was due), and how long the client's event loop stood still, each as a "
            "share of its own limit (dashed: "
            f"{milliseconds(limits.lateness_s)} late, {milliseconds(limits.loop_lag_s)} of lag; "
            f"what is above {_TOP} limits is drawn there). A stretch whose p99 is out of limits is "
            "shaded and named. The gate judges the p99 of the whole replay: a shaded stretch alone "
            "does not make it invalid."
        ),
        alt=(
            "Strips of client lateness and loop lag over time against their limits, in "
            f"{count(len(variants), 'block')}: {'; '.join([found, *details[:3]])}."
        ),
        variants=variants,
        notes=notes,
        details=[*details[:_LISTED], *[f"and {len(details) - _LISTED} more"]]
        if len(details) > _LISTED
        else details,
        details_title=found,
        shared_axis="time",
    )


def _row(
    replay: Replay, limits: Limits, horizon_s: float, width_s: float, invalid: Collection[tuple]
) -> _Row:
    series = series_of(replay, limits, horizon_s, width_s)
    out = [stretch for one in series for stretch in stretches(one, width_s)]
    key = (replay.seed, replay.policy, replay.draw, replay.budget)
    return _Row(replay, series, sorted(out, key=lambda one: one.start_s), key in invalid)


def _shown(rows: Sequence[_Row]) -> list[_Row]:
    """Return the rows that are drawn, the capture first and the others in their order."""
    places = sorted(range(len(rows)), key=lambda k: not (rows[k].invalid or rows[k].out))
    kept = [rows[k] for k in sorted(places[:MAX_ROWS])]
    return sorted(kept, key=lambda row: row.replay.policy != NOSYNC)


def _strips(rows: Sequence[_Row], horizon_s: float, width_s: float) -> tuple[list[dict], dict]:
    data, labels, shapes = [], [], []
    for place, row in enumerate(rows):
        base = (len(rows) - 1 - place) * _UNIT
        for series in row.series:
            data += _lines(series, base, width_s, named=place == 0)
        label = row_label(row.label, base + _TOP * _LIMIT, 1)
        if row.out or row.invalid:
            label["font"] = label["font"] | {"color": "@violation"}
        labels.append(label)
        shapes.append(_level(base + _LIMIT))
        shapes += [_shade(stretch, base) for stretch in row.out[:_SHADED]]
    layout = base_layout(
        len(rows) * _ROW_PX + _MARGIN_PX,
        showlegend=True,
        legend=legend_above(),
        xaxis=axis("seconds since the load started", range=[0, horizon_s]),
        yaxis=axis(
            None,
            range=[-0.1 * _UNIT, len(rows) * _UNIT],
            showticklabels=False,
            showgrid=False,
            zeroline=False,
            fixedrange=True,
        ),
        annotations=labels,
        shapes=shapes,
    )
    return data, layout


def _lines(series: Series, base: int, width_s: float, *, named: bool) -> list[dict]:
    """Return the line of a quantity's worst values, and of its p99 where that differs."""
    if series.what == _LAG:
        drawn = [(_LAG, series.worst_s, {"color": "@c2", "dash": "dot"})]
    else:
        drawn = [(_LATE, series.worst_s, {"color": "@c1"})]
        if not np.array_equal(series.worst_s, series.p99_s, equal_nan=True):
            drawn.append((f"{_LATE}, p99", series.p99_s, {"color": "@ink", "dash": "dash"}))
    return [_line(*one, series.limit_s, base, width_s, named=named) for one in drawn]


def _line(
    name: str,
    values_s: np.ndarray,
    look: dict,
    limit_s: float,
    base: int,
    width_s: float,
    *,
    named: bool,
) -> dict:
    # the last bin is drawn to its end; one without a request has none that was late
    values = np.nan_to_num(np.append(values_s, values_s[-1]), nan=0.0, posinf=np.inf)
    height = np.minimum(values / limit_s, _TOP) * _LIMIT
    return {
        "type": "scatter",
        "mode": "lines",
        "x0": 0,
        "dx": width_s,
        "y": packed(base + np.rint(height), "i2"),
        "customdata": packed(1000 * values, "f4"),
        "line": look | {"width": 1.5, "shape": "hv"},
        "name": name,
        "legendgroup": name,
        "showlegend": named,
        "hovertemplate": "%{x:.0f} s: %{customdata:.1f} ms<extra>%{fullData.name}</extra>",
    }


def _level(height: int) -> dict:
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": height,
        "y1": height,
        "line": {"color": "@muted", "width": 1, "dash": "dash"},
    }


def _shade(stretch: Stretch, base: int) -> dict:
    return {
        "type": "rect",
        "x0": stretch.start_s,
        "x1": stretch.end_s,
        "y0": base,
        "y1": base + _TOP * _LIMIT,
        "fillcolor": "@violation/0.28",
        "line": {"width": 0},
        "layer": "below",
    }


def _times(stretch: Stretch) -> str:
    if stretch.end_s - stretch.start_s <= 1:
        return f"at {stretch.start_s:g} s"
    return f"{stretch.start_s:g}\u2013{stretch.end_s:g} s"


def _words(stretch: Stretch) -> str:
    worst = milliseconds(stretch.worst_s) if np.isfinite(stretch.worst_s) else "never sent"
    return f"{stretch.what} {_times(stretch)}, worst {worst}"
