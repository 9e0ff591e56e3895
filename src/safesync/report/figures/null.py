"""The exact null: what every placement of a budget would meet, and where the policies stand."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from safesync.protocol.gates import count
from safesync.report.figures.base import (
    Colours,
    Figure,
    Variant,
    axis,
    base_layout,
    plain,
    rounded,
    row_label,
)

MAX_BLOCKS = 12
_TAIL = 1e-6  # totals rarer than this are not drawn, but for the optimum
_AREA_PX = 110  # a budget's distribution, with its heading
_MARK_PX = 19  # a line below it for each policy
_GAP_PX = 16
_MARGIN_PX = 90
_HEIGHT = 0.72  # of the highest distribution, as a share of its area


def null_figure(rows: pd.DataFrame, policies: Sequence[str], colours: Colours) -> Figure | None:
    """Return the exact nulls of one regime from its OVERLAP rows, a variant per block.

    One row of the figure per budget: the distribution over all placements, the optimum as its
    bound, a mark per policy. None without rows.
    """
    if rows.empty:
        return None
    seeds = sorted(rows["seed"].unique())
    notes = []
    if len(seeds) > MAX_BLOCKS:
        notes.append(f"{MAX_BLOCKS} of {len(seeds)} blocks are shown.")
    places = {policy: place for place, policy in enumerate(policies)}
    variants = [
        Variant(
            f"seed {seed}",
            *_block(
                rows[rows["seed"] == seed].sort_values(
                    "policy", key=lambda names: names.map(places)
                ),
                colours,
            ),
        )
        for seed in seeds[:MAX_BLOCKS]
    ]
    return Figure(
        name="null",
        title="Each policy among all placements of its budget",
        caption=(
            "Area: the exact distribution of overlapped requests over every feasible schedule of "
            "as many merges, not a sample. Dashed line: the optimum, which no schedule of it "
            "can beat. Left is better."
        ),
        alt=(
            "Distributions of overlapped requests by number of merges in "
            f"{count(len(seeds), 'block')}, with the optimum and "
            f"{rows['policy'].nunique()} policies marked on them."
        ),
        variants=variants,
        notes=notes,
    )


def _block(rows: pd.DataFrame, colours: Colours) -> tuple[list[dict], dict]:
    """Return traces and layout of one block; y counts pixels down from the top.

    Each policy has a line of its own below the distribution of its budget, so that names cannot
    meet, however many policies share a budget or how close they lie.
    """
    values = [*rows["overlap"], *rows["optimum"]]
    for _, row in rows.iterrows():
        values += _seen(row)[0].tolist()
    low, high = min(values), max(values)
    middle, room = (low + high) / 2, 0.04 * max(high - low, 1)
    data, labels, y = [], [], 0.0
    for budget, here in rows.groupby("budget", sort=True):
        labels.append(row_label(f"<b>{count(int(budget), 'merge')}</b>", y - 18, 0))
        foot = y - _AREA_PX
        y = foot - _MARK_PX * (len(here) + 0.5)
        data += [_distribution(here.iloc[0], foot), _optimum(here.iloc[0], foot)]
        data += [
            _policy(row, foot - _MARK_PX * (place + 1), colours, right=row["overlap"] <= middle)
            for place, (_, row) in enumerate(here.iterrows())
        ]
        y -= _GAP_PX
    layout = base_layout(
        int(-y) + _MARGIN_PX,
        xaxis=axis("overlapped requests", range=[low - room, high + room]),
        yaxis=axis(
            None,
            showticklabels=False,
            range=[y, 0],
            showgrid=False,
            zeroline=False,
            fixedrange=True,
        ),
        annotations=labels,
    )
    return data, layout


def _seen(row: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Return the totals that are drawn and their probabilities, shape (n,) each."""
    probabilities = np.asarray(row["null_probabilities"])
    drawn = np.flatnonzero(probabilities >= _TAIL)
    return np.asarray(row["null_values"])[drawn], probabilities[drawn]


def _distribution(row: pd.Series, foot: float) -> dict:
    values, probabilities = _seen(row)
    height = foot + _AREA_PX * _HEIGHT * probabilities / probabilities.max()
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [int(values[0]), *values.tolist(), int(values[-1])],
        "y": rounded([foot, *height, foot], 1),
        "fill": "toself",
        "fillcolor": "@control/0.25",
        "line": {"color": "@control", "width": 1.5},
        "hoverinfo": "skip",
    }


def _optimum(row: pd.Series, foot: float) -> dict:
    optimum = int(row["optimum"])
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [optimum, optimum],
        "y": rounded([foot, foot + _AREA_PX * _HEIGHT]),
        "line": {"color": "@ink", "width": 1.5, "dash": "dash"},
        "hovertemplate": f"optimum of {count(row['budget'], 'merge')}: {count(optimum, 'request')}"
        "<extra></extra>",
    }


def _policy(row: pd.Series, y: float, colours: Colours, *, right: bool) -> dict:
    """Return a policy's mark, its name on the side (``right`` or left) where there is room."""
    name = plain(row["policy"])
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [int(row["overlap"])],
        "y": rounded([y]),
        "text": [f" {name} "],
        "textposition": "middle right" if right else "middle left",
        "textfont": {"color": "@ink", "size": 12},
        "marker": {
            "symbol": colours.symbol(row["policy"]),
            "size": 11,
            "color": colours.token(row["policy"]),
            "line": {"color": "@surface", "width": 1},
        },
        "hovertemplate": f"{name}: {row['overlap']} requests, as few in "
        f"{100 * row['p_at_most']:.3g} % of all placements on this trace<extra></extra>",
    }
