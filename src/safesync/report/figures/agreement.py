"""Agreement: every real replay of a regime against its emulated twin."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from safesync.protocol.blocks import NOSYNC, judged_policy
from safesync.protocol.gates import count
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
from safesync.report.wording import signed

# figure of AGREEMENT, what the axes say, what its values are multiplied by
_SHOWN = (("violation_rate", "violation rate, %", 100), ("e2e_p95_s", "e2e p95, s", 1))


def agreement_figure(
    rows: pd.DataFrame, policies: Sequence[str], colours: Colours
) -> Figure | None:
    """Return the plots of one regime's AGREEMENT rows; None without a row.

    Repeats of a schedule are marks of their own: their spread is the noise of one measurement.
    """
    rows = rows.assign(of=[judged_policy(policy) for policy in rows["policy"]])
    found = [
        (label, here, factor)
        for figure, label, factor in _SHOWN
        if not (here := rows[rows["figure"] == figure]).empty
    ]
    if not found:
        return None
    return Figure(
        name="agreement",
        title="Real replays and their emulated twins",
        caption=(
            "A mark per real replay of a judged block, which calibration never saw, with the same "
            "arrivals and schedule on both sides. On the diagonal they agree; above it the "
            "emulator is too pessimistic, below it too optimistic. How much a window contends is "
            "chance: a twin is the mean over several such chances, where the emulated tier takes "
            "one per block, the same for a policy and its draws."
        ),
        alt=" ".join(_alt(label, here, factor) for label, here, factor in found),
        variants=[
            _variant(label, here, factor, policies, colours) for label, here, factor in found
        ],
    )


def _variant(
    label: str, rows: pd.DataFrame, factor: float, policies: Sequence[str], colours: Colours
) -> Variant:
    places = {policy: place for place, policy in enumerate(policies)}
    low, high = _range(rows, factor)
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "agreement",
            "x": rounded([low, high]),
            "y": rounded([low, high]),
            "line": {"color": "@muted", "width": 1.5, "dash": "dash"},
            "hoverinfo": "skip",
        }
    ]
    for of in sorted(set(rows["of"]), key=lambda name: (places.get(name, len(places)), name)):
        here = rows[rows["of"] == of]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": plain(of),
                "x": rounded(factor * here["measured"]),
                "y": rounded(factor * here["emulated"]),
                "text": [
                    f"{plain(row.policy)} draw {row.draw}, seed {row.seed}"
                    for row in here.itertuples()
                ],
                "marker": {
                    # apart from the draws, which are open circles too
                    "symbol": "x-thin-open" if of == NOSYNC else colours.symbol(of),
                    "size": 9,
                    "color": colours.token(of),
                },
                "hovertemplate": "%{text}: measured %{x:.2f}, emulated %{y:.2f}<extra></extra>",
            }
        )
    layout = base_layout(
        420,
        showlegend=True,
        legend=legend_above(),
        xaxis=axis(f"measured {label}", range=[low, high], zeroline=False),
        yaxis=axis(f"emulated {label}", range=[low, high], zeroline=False),
    )
    return Variant(label.partition(",")[0], data, layout)


def _range(rows: pd.DataFrame, factor: float) -> tuple[float, float]:
    """Return the stretch that both axes show, so that the diagonal is one."""
    values = factor * rows[["measured", "emulated"]].to_numpy(float)
    values = values[np.isfinite(values)]
    low, high = float(values.min(initial=0)), float(values.max(initial=0))
    pad = 0.05 * (high - low) or 1.0
    return low - pad, high + pad


def _alt(label: str, rows: pd.DataFrame, factor: float) -> str:
    error = factor * rows["error"]
    return (
        f"Emulated against measured {label}, of {count(len(rows), 'real replay')}: emulated less "
        f"measured is {signed(error.mean())} on average, {signed(error.min())} to "
        f"{signed(error.max())}."
    )
