"""Forecast error: how much of the way from the oracle to chance a worse forecast costs."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from safesync.report.figures.base import (
    Colours,
    Figure,
    Variant,
    axis,
    base_layout,
    legend_above,
    plain,
    rounded,
)


def regret_share(rows: pd.DataFrame) -> np.ndarray:
    """Return regret over (mean of all placements - optimum), shape (rows,), from OVERLAP rows.

    0 is the oracle's schedule, 1 is as good as chance; so budgets and blocks can be compared. NaN
    where all placements meet as many requests.
    """
    away = (rows["null_mean"] - rows["optimum"]).to_numpy(float)
    regret = rows["regret"].to_numpy(float)
    return np.divide(regret, away, out=np.full(len(rows), np.nan), where=away > 0)


def forecast_figure(rows: pd.DataFrame, policies: Sequence[str], colours: Colours) -> Figure | None:
    """Return regret against ``forecast_error``, a line per method; None without two errors."""
    rows = rows[rows["forecast_error"].notna()].assign(share=regret_share)
    methods = rows.groupby("method")["forecast_error"].nunique()
    shown = [method for method in dict.fromkeys(rows["method"]) if methods[method] > 1]
    if not shown:
        return None
    data, said = [], []
    for method in shown:
        here = rows[rows["method"] == method]
        means = here.groupby("forecast_error")["share"].mean()
        first = min(here["policy"].unique(), key=policies.index)
        look = {"symbol": colours.symbol(first), "color": colours.token(first)}
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": rounded(here["forecast_error"]),
                "y": rounded(here["share"]),
                "text": [
                    f"{plain(row.policy)}, seed {row.seed}: {row.regret} requests above the optimum"
                    for row in here.itertuples()
                ],
                "marker": look | {"size": 7, "opacity": 0.45},
                "hovertemplate": "%{text}<extra></extra>",
                "showlegend": False,
            }
        )
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": plain(method),
                "x": rounded(means.index),
                "y": rounded(means),
                "marker": look | {"size": 11, "line": {"color": "@surface", "width": 1}},
                "line": {"color": look["color"], "width": 2},
                "hovertemplate": f"{plain(method)}, mean over blocks at error %{{x}}: %{{y:.2f}}"
                "<extra></extra>",
            }
        )
        ends = ", ".join(f"{error:g}: {share:.2f}" for error, share in means.items())
        said.append(f"{method} at error {ends}")
    errors = rows["forecast_error"]
    for name, level, dash in (("oracle: the optimum", 0, "dash"), ("matched random", 1, "dot")):
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "x": rounded([errors.min(), errors.max()]),
                "y": [level, level],
                "line": {"color": "@control", "width": 1.5, "dash": dash},
                "hoverinfo": "skip",
            }
        )
    layout = base_layout(
        360,
        xaxis=axis("forecast_error, no unit", zeroline=False),
        yaxis=axis("regret, 0 the optimum, 1 chance", rangemode="tozero"),
        showlegend=True,
        legend=legend_above(),
    )
    return Figure(
        name="forecast",
        title="Regret against forecast error",
        caption=(
            "forecast_error: what the forecaster's error is multiplied by. Regret: overlapped "
            "requests above the optimum of the policy's own budget, as a share of what an average "
            "placement of it lies above the optimum. Small marks: blocks; line: their mean. A "
            "forecast that degrades gracefully climbs slowly towards 1."
        ),
        alt=f"Regret between the oracle (0) and matched random (1): {'; '.join(said)}.",
        variants=[Variant("all blocks", data, layout)],
    )
