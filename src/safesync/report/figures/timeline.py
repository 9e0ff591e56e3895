"""Timeline of a block: load on top, below it one lane per replay with merges and violations."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from safesync.protocol.blocks import NOSYNC
from safesync.protocol.gates import count
from safesync.protocol.scores import violates
from safesync.report.figures.base import (
    Colours,
    Figure,
    Variant,
    axis,
    base_layout,
    order,
    plain,
    rounded,
    row_label,
)
from safesync.report.replay import Replay

MAX_BLOCKS = 6
MAX_POLICY_LANES = 10
MAX_DRAWS_PER_CONTROL = 3  # of matched random per budget
MAX_MARKS_PER_LANE = 300
_BINS = 1200
_LANE_PX = 50
_LOAD_PX = 230
_MARGIN_PX = 74


def timeline(
    replays: Sequence[Replay],
    nosync: Mapping[int, Replay],
    policies: Sequence[str],
    colours: Colours,
    *,
    metric: str,
    threshold_s: float,
    merge_s: float,
    horizon_s: float,
) -> Figure | None:
    """Return the timeline of one regime, a variant per block; None without a capture to show.

    ``replays``: of one (tier, regime). ``nosync``: seed -> capture. ``policies``: order of lanes.
    """
    seeds = [seed for seed in sorted({r.seed for r in replays}) if seed in nosync]
    if not seeds:
        return None
    notes: list[str] = []
    if len(seeds) > MAX_BLOCKS:
        notes.append(f"{MAX_BLOCKS} of {len(seeds)} blocks are shown.")
    shown = seeds[:MAX_BLOCKS]
    variants, without_lane = [], 0
    for seed in shown:
        lanes, left_out = _lanes([r for r in replays if r.seed == seed], policies)
        without_lane = max(without_lane, left_out)
        variants.append(
            _variant(
                seed, lanes, nosync[seed], colours, metric, threshold_s, merge_s, horizon_s, notes
            )
        )
    merging = [r for r in order(replays, policies) if r.seed in shown and len(r.merges)]
    if without_lane:
        notes.append(
            f"A block shows {MAX_DRAWS_PER_CONTROL} draws per control and budget, "
            f"{MAX_POLICY_LANES} policies at most; up to {without_lane} more of its replays are in "
            "the table only."
        )
    return Figure(
        name="timeline",
        title="Load, merges and violations over time",
        caption=(
            "Above: requests arriving per second and the most that were in flight at once, in the "
            "capture without merges. Below: one lane per replay with its violation rate; bars are "
            "merge windows, ticks are requests that violated the objective, at their arrival. Drag "
            "to zoom, double-click to reset; with the keyboard: arrows, plus, minus, 0."
        ),
        alt=(
            f"Timeline of {count(len(variants), 'block')}. In each, the arrival rate and the "
            "requests in flight without merges stand over lanes of merge windows, one lane "
            "per replay, with a tick for every request that violated the objective."
        ),
        variants=variants,
        notes=notes,
        details=[_starts(replay) for replay in merging],
        details_title="When merges start, s",
        shared_axis="time",
    )


def _lanes(replays: Sequence[Replay], policies: Sequence[str]) -> tuple[list[Replay], int]:
    """Return the replays that get a lane, and how many did not."""
    ordered = [r for r in order(replays, policies) if r.policy != NOSYNC]
    shown, drawn = [], {}
    for replay in ordered:
        if replay.is_control:
            drawn[replay.group] = drawn.get(replay.group, 0) + 1
            if drawn[replay.group] > MAX_DRAWS_PER_CONTROL:
                continue
        elif sum(not r.is_control for r in shown) >= MAX_POLICY_LANES:
            continue
        shown.append(replay)
    return shown, len(ordered) - len(shown)


def _variant(
    seed: int,
    lanes: Sequence[Replay],
    capture: Replay,
    colours: Colours,
    metric: str,
    threshold_s: float,
    merge_s: float,
    horizon_s: float,
    notes: list[str],
) -> Variant:
    data = [*_load(capture.requests, horizon_s)]
    labels = []
    for place, replay in enumerate(lanes):
        y = len(lanes) - 1 - place
        data += _lane(replay, y, colours, metric, threshold_s, merge_s, notes)
        labels.append(row_label(_label(replay, metric, threshold_s), y, 6, "y3"))
    height = _LOAD_PX + max(1, len(lanes)) * _LANE_PX + _MARGIN_PX
    share = (max(1, len(lanes)) * _LANE_PX) / (height - _MARGIN_PX)
    gap = 14 / (height - _MARGIN_PX)
    top = (1 - share - 2 * gap) / 2
    x_axis = axis("seconds since the load started", range=[0, horizon_s], anchor="y3")
    layout = base_layout(
        height,
        xaxis=x_axis
        | {"showspikes": True, "spikemode": "across", "spikethickness": 1}
        | {"spikecolor": "@muted", "spikedash": "dot", "spikesnap": "cursor"},
        yaxis=axis("arrivals / s", domain=[1 - top, 1], rangemode="tozero", fixedrange=True),
        yaxis2=axis(
            "in flight",
            domain=[share + gap, share + gap + top],
            rangemode="tozero",
            fixedrange=True,
        ),
        yaxis3=axis(
            None,
            domain=[0, share],
            range=[-0.45, len(lanes) - 0.45],
            showticklabels=False,
            showgrid=False,
            zeroline=False,
            fixedrange=True,
        ),
        annotations=labels,
        bargap=0,
        barmode="overlay",
    )
    return Variant(f"seed {seed}", data, layout)


def _load(requests: pd.DataFrame, span: float) -> list[dict]:
    """Return the traces of arrivals per second and of the most in flight, without merges."""
    width = max(1.0, float(np.ceil(span / _BINS)))
    edges = np.arange(0, span + width, width)
    starts = edges[:-1]
    arrivals, done = np.sort(requests["arrival_s"]), np.sort(requests["done_s"])
    rate = np.histogram(arrivals, edges)[0] / width
    # the number in flight rises at arrivals only: a bin's most is at its start or at one of them
    at = np.sort(np.concatenate([starts, arrivals]))
    in_flight = np.searchsorted(arrivals, at, "right") - np.searchsorted(done, at, "right")
    most = np.maximum.reduceat(in_flight, np.searchsorted(at, starts))
    # the last bin is drawn to its end
    rate, most = (np.append(values, values[-1]) for values in (rate, most))
    x = rounded(np.append(starts, span), 2)
    shared = {"type": "scatter", "mode": "lines", "x": x, "fill": "tozeroy"}
    return [
        shared
        | {
            "y": rounded(rate, 2),
            "name": "arrivals per second",
            "line": {"color": "@muted", "width": 1, "shape": "hv"},
            "fillcolor": "@muted/0.18",
            "hovertemplate": "%{x:.0f} s: %{y:.2f} arrivals/s<extra></extra>",
        },
        shared
        | {
            "y": rounded(most, 0),
            "name": "in flight without merges",
            "yaxis": "y2",
            "line": {"color": "@muted", "width": 1.5, "shape": "hv"},
            "fillcolor": "@muted/0.10",
            "hovertemplate": "%{x:.0f} s: %{y:.0f} in flight at most<extra></extra>",
        },
    ]


def _lane(
    replay: Replay,
    y: int,
    colours: Colours,
    metric: str,
    threshold_s: float,
    merge_s: float,
    notes: list[str],
) -> list[dict]:
    token = colours.token(replay.policy)
    traces = []
    merges = replay.merges
    if len(merges):
        start = merges["start_s"].fillna(merges["planned_s"])
        length = (merges["end_s"] - start).fillna(merge_s)
        said = [
            f"merge {int(k) + 1}{_reason(replay, int(k))}: {a:.1f} to {a + d:.1f} s"
            for k, a, d in zip(merges["merge"], start, length, strict=True)
        ]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "base": rounded(start, 2),
                "x": rounded(length, 2),
                "y": [y] * len(merges),
                "yaxis": "y3",
                "width": 0.2,
                "marker": {"color": token, "line": {"width": 0}},
                "hovertext": said,
                "hoverinfo": "text",
                "name": plain(replay.group),
            }
        )
    late = violates(replay.requests, metric, threshold_s)
    at = np.sort(replay.requests["arrival_s"].to_numpy()[late])
    if at.size > MAX_MARKS_PER_LANE:
        notes.append(
            f"{replay.group}, seed {replay.seed}: {MAX_MARKS_PER_LANE} of {at.size} violations are "
            "marked, evenly thinned."
        )
        at = at[np.linspace(0, at.size - 1, MAX_MARKS_PER_LANE).astype(int)]
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "x": rounded(at, 2),
            "y": [y - 0.24] * len(at),
            "yaxis": "y3",
            "marker": {
                "symbol": "line-ns-open",
                "size": 8,
                "color": "@violation",
                "line": {"width": 1.2, "color": "@violation"},
            },
            "hovertemplate": "violation of the request that arrived at %{x:.1f} s<extra></extra>",
            "name": "violations",
        }
    )
    return traces


def _starts(replay: Replay) -> str:
    starts = replay.merges["start_s"].fillna(replay.merges["planned_s"])
    said = ", ".join(f"{start:.1f}" for start in starts)
    return f"{replay.name}, seed {replay.seed}: {said}"


def _reason(replay: Replay, merge: int) -> str:
    if replay.schedule is None:
        return ""
    found = replay.schedule.loc[replay.schedule["merge"] == merge, "reason"]
    return " (forced)" if len(found) and found.iloc[0] == "forced" else ""


def _label(replay: Replay, metric: str, threshold_s: float) -> str:
    rate = violates(replay.requests, metric, threshold_s).mean()
    return f"{plain(replay.name)} \u00b7 {count(replay.budget, 'merge')} \u00b7 {100 * rate:.1f} %"
