"""Violations among the requests that each merge window meets, against how many it meets."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from safesync.protocol.gates import count
from safesync.protocol.scores import exposed, violates
from safesync.protocol.validity import window_ends_s
from safesync.report.figures.base import (
    Colours,
    Figure,
    Variant,
    axis,
    base_layout,
    legend_above,
    order,
    plain,
    rounded,
)
from safesync.report.replay import Replay

MAX_WINDOWS = 2000
_BINS = 5
_WINDOWS_PER_BIN = 4


def window_rows(
    replays: Sequence[Replay],
    nosync: Mapping[int, Replay],
    *,
    metric: str,
    threshold_s: float,
    merge_s: float,
) -> pd.DataFrame:
    """Return one row per merge window: group, policy, seed, start_s, met, violated.

    ``met`` counts the requests that are in flight at the window's planned start or arrive inside
    it in the block's capture; ``violated`` is the share of those that violated in the replay, NaN
    for a window that meets nobody. Replays of a block without a capture have no rows.
    """
    rows = []
    for replay in replays:
        capture = nosync.get(replay.seed)
        if capture is None or replay.merges.empty:
            continue
        quiet = capture.requests.sort_values("request_id")
        late = violates(replay.requests.sort_values("request_id"), metric, threshold_s)
        starts = replay.merges["planned_s"]
        ends = window_ends_s(starts, merge_s, replay.manifest)
        for start, end in zip(starts, ends, strict=True):
            met = exposed(quiet, start, end)
            share = late[met].mean() if met.any() else np.nan
            rows.append((replay.group, replay.policy, replay.seed, start, met.sum(), share))
    return pd.DataFrame(rows, columns=["group", "policy", "seed", "start_s", "met", "violated"])


def windows_figure(
    replays: Sequence[Replay],
    nosync: Mapping[int, Replay],
    policies: Sequence[str],
    colours: Colours,
    *,
    metric: str,
    threshold_s: float,
    merge_s: float,
) -> Figure | None:
    """Return the scatter of one (tier, regime), over all its replays; None without a window."""
    rows = window_rows(
        order(replays, policies), nosync, metric=metric, threshold_s=threshold_s, merge_s=merge_s
    )
    idle = int((rows["met"] == 0).sum())
    rows = rows[rows["met"] > 0]
    if rows.empty:
        return None
    notes = []
    if idle:
        verb = "is" if idle == 1 else "are"
        notes.append(f"{count(idle, 'window')} met no request and {verb} not drawn.")
    apart = sum(len(replay.merges) for replay in replays if replay.seed not in nosync)
    if apart:
        verb = "is" if apart == 1 else "are"
        notes.append(f"{count(apart, 'window')} of blocks without a capture {verb} not drawn.")
    shown = rows
    if len(rows) > MAX_WINDOWS:
        shown = rows.sample(MAX_WINDOWS, random_state=0).sort_index()
        notes.append(f"{MAX_WINDOWS} of {len(rows)} windows are drawn; the line uses all.")
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": plain(group),
            "x": part["met"].tolist(),
            "y": rounded(100 * part["violated"], 1),
            "customdata": part[["seed", "start_s"]].round(1).to_numpy().tolist(),
            "marker": {
                "symbol": colours.symbol(part["policy"].iloc[0]),
                "color": colours.token(part["policy"].iloc[0]),
                "size": 9,
                "opacity": 0.8,
            },
            "hovertemplate": "seed %{customdata[0]}, at %{customdata[1]} s: %{y:.0f} % of %{x} "
            "requests<extra>%{fullData.name}</extra>",
        }
        for group, part in shown.groupby("group", sort=False)
    ]
    data += _trend(rows)
    captures = [c for seed, c in nosync.items() if seed in set(rows["seed"])]
    level = float(np.mean([violates(c.requests, metric, threshold_s).mean() for c in captures]))
    layout = base_layout(
        400,
        showlegend=True,
        legend=legend_above(),
        xaxis=axis("requests that the window meets") | {"rangemode": "tozero"},
        yaxis=axis("of them violated, %", range=[-3, 103]),
        shapes=[
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": 100 * level,
                "y1": 100 * level,
                "line": {"color": "@muted", "width": 1, "dash": "dot"},
            }
        ],
        annotations=[
            {
                "text": f"without merges: {level:.1%} of all requests",
                "x": 1,
                "xref": "paper",
                "xanchor": "right",
                "y": 100 * level,
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"color": "@muted", "size": 12},
            }
        ],
    )
    return Figure(
        name="windows",
        title="What a merge costs, by how much load it meets",
        caption=(
            f"Every merge window that meets a request ({len(rows)} in all). A window meets the "
            "requests that are in flight at its start or arrive inside it, in the capture without "
            "merges: its own harm does not count as load."
        ),
        alt=(
            f"Scatter of {count(len(rows), 'merge window')}: requests met against the "
            f"share of them that violated. {_in_words(rows)}"
        ),
        variants=[Variant("all blocks", data, layout)],
        notes=notes,
    )


def _bins(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean load and violating share of the windows by rank of load, request-weighted."""
    bins = min(_BINS, len(rows) // _WINDOWS_PER_BIN)
    if bins < 2:
        return pd.DataFrame(columns=["met", "violated"])
    place = pd.qcut(rows["met"].rank(method="first"), bins, labels=False)
    weighted = rows.assign(violating=rows["met"] * rows["violated"]).groupby(place)
    return pd.DataFrame(
        {
            "met": weighted["met"].mean(),
            "violated": weighted["violating"].sum() / weighted["met"].sum(),
        }
    )


def _trend(rows: pd.DataFrame) -> list[dict]:
    bins = _bins(rows)
    if bins.empty:
        return []
    return [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": f"mean of {len(bins)} load ranks",
            "x": rounded(bins["met"], 1),
            "y": rounded(100 * bins["violated"], 1),
            "line": {"color": "@ink", "width": 2},
            "marker": {"color": "@ink", "size": 5},
            "hovertemplate": "windows that meet %{x:.0f} requests: %{y:.0f} %<extra></extra>",
        }
    ]


def _in_words(rows: pd.DataFrame) -> str:
    bins = _bins(rows)
    if bins.empty:
        return f"Overall {np.average(rows['violated'], weights=rows['met']):.0%}."
    first, last = bins.iloc[0], bins.iloc[-1]
    return (
        f"From {first['violated']:.0%} at about {first['met']:.0f} requests to "
        f"{last['violated']:.0%} at about {last['met']:.0f}."
    )
