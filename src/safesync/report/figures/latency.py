"""Latency distribution of every policy, pooled over blocks, with the objective."""

from collections.abc import Sequence

import numpy as np

from safesync.protocol.scores import metric_s
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

_POINTS = 200
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")
_NAMES = {
    "e2e": "latency from scheduled arrival to last byte",
    "ttft": "time to first token, from scheduled arrival",
    "tpot": "time per output token",
}


def latency_cdf(
    replays: Sequence[Replay],
    policies: Sequence[str],
    colours: Colours,
    *,
    metric: str,
    threshold_s: float,
) -> Figure | None:
    """Return the cumulative latency of one (tier, regime); None without any request."""
    groups: dict[str, list[Replay]] = {}
    for replay in order(replays, policies):
        groups.setdefault(replay.group, []).append(replay)
    data = []
    for place, (group, members) in enumerate(groups.items()):
        values = np.concatenate([metric_s(r.requests, metric) for r in members])
        values = np.sort(values[~np.isnan(values)])
        if not values.size:
            continue
        ranks = np.unique(np.linspace(1, values.size, min(_POINTS, values.size)).astype(int))
        ranks = ranks[np.isfinite(values[ranks - 1])]
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": plain(group),
                "x": rounded(values[ranks - 1], 4),
                "y": rounded(100 * ranks / values.size, 2),
                "line": {
                    "color": colours.token(members[0].policy),
                    "width": 2,
                    "shape": "hv",
                    "dash": _DASHES[place % len(_DASHES)],
                },
                "hovertemplate": "%{y:.1f} % within %{x:.2f} s<extra>%{fullData.name}</extra>",
            }
        )
    if not data:
        return None
    layout = base_layout(
        400,
        showlegend=True,
        legend=legend_above(),
        xaxis=axis(f"{_NAMES[metric]}, s (log)", type="log", dtick="D2"),
        yaxis=axis("requests within, %", range=[0, 101]),
        shapes=[
            {
                "type": "line",
                "xref": "x",
                "yref": "paper",
                "x0": threshold_s,
                "x1": threshold_s,
                "y0": 0,
                "y1": 1,
                "line": {"color": "@violation", "width": 1.5, "dash": "dash"},
            }
        ],
        annotations=[
            {
                "x": float(np.log10(threshold_s)),
                "y": 0.02,
                "xref": "x",
                "yref": "paper",
                "text": f"SLO {threshold_s:.3g} s",
                "showarrow": False,
                "xanchor": "left",
                "xshift": 4,
                "yanchor": "bottom",
                "font": {"color": "@violation", "size": 12},
            }
        ],
    )
    return Figure(
        name="latency",
        title="Latency of all requests",
        caption=(
            "Share of requests done within a latency, pooled over the judged blocks. A failed or "
            "censored request counts as never done, so its curve ends below 100 %."
        ),
        alt=(
            f"Cumulative latency curves of {len(data)} groups of replays with a vertical line at "
            f"the objective of {threshold_s:.3g} seconds."
        ),
        variants=[Variant("all blocks", data, layout)],
    )
