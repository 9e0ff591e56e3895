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
_MARK = 0.16  # height of one policy's mark, in rows
_ROW_PX = 150


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
    budgets = sorted(rows["budget"].unique())
    data, labels = [], []
    for place, budget in enumerate(budgets):
        here = rows[rows["budget"] == budget]
        base = -float(place)
        data += [_distribution(here.iloc[0], base), _optimum(here.iloc[0], base)]
        for k, (_, row) in enumerate(here.iterrows()):
            data.append(_policy(row, base + _MARK * (0.5 + k % 4), colours))
        labels.append(row_label(f"<b>{count(budget, 'merge')}</b>", base + 0.82, 0))
    layout = base_layout(
        len(budgets) * _ROW_PX + 90,
        xaxis=axis("overlapped requests"),
        yaxis=axis(
            None,
            showticklabels=False,
            range=[0.92 - len(budgets), 1.1],
            showgrid=False,
            zeroline=False,
            fixedrange=True,
        ),
        annotations=labels,
    )
    return data, layout


def _distribution(row: pd.Series, base: float) -> dict:
    values = np.asarray(row["null_values"])
    probabilities = np.asarray(row["null_probabilities"])
    seen = np.flatnonzero(probabilities >= _TAIL)
    values, probabilities = values[seen], probabilities[seen]
    height = base + 0.75 * probabilities / probabilities.max()
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [int(values[0]), *values.tolist(), int(values[-1])],
        "y": rounded([base, *height, base]),
        "fill": "toself",
        "fillcolor": "@control/0.25",
        "line": {"color": "@control", "width": 1.5},
        "hoverinfo": "skip",
    }


def _optimum(row: pd.Series, base: float) -> dict:
    optimum = int(row["optimum"])
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [optimum, optimum],
        "y": [base, base + 0.75],
        "line": {"color": "@ink", "width": 1.5, "dash": "dash"},
        "hovertemplate": f"optimum of {count(row['budget'], 'merge')}: {count(optimum, 'request')}"
        "<extra></extra>",
    }


def _policy(row: pd.Series, y: float, colours: Colours) -> dict:
    name = plain(row["policy"])
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [int(row["overlap"])],
        "y": rounded([y]),
        "text": [name],
        "textposition": "middle right",
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
