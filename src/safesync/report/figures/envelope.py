"""Envelope: where each policy stands among the matched-random draws of its own budget."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from safesync.protocol.blocks import NOT_POLICIES, collect
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
MAX_DRAWS = 60
_ROW_PX = 26
_HEAD_PX = 28


def envelope(
    scores: pd.DataFrame, tier: str, regime: str, policies: Sequence[str], colours: Colours
) -> Figure | None:
    """Return the envelope of one (tier, regime) from its judge rows; None without a policy."""
    data, labels, ticks, notes = [], [], [], []
    y = 0.0
    shown = [policy for policy in policies if policy not in NOT_POLICIES]
    for policy in shown:
        blocks = collect(scores, tier, regime, policy)
        if not blocks:
            continue
        y -= _HEAD_PX / _ROW_PX
        budgets = sorted({int(block.policy["budget"]) for block in blocks})
        said = " or ".join([*map(str, budgets[:-1]), count(budgets[-1], "merge")])
        without = "" if any(len(b.draws) for b in blocks) else ", no draws of its own"
        labels.append(row_label(f"<b>{plain(policy)}</b>, {said}{without}", y + 0.55, 0))
        if len(blocks) > MAX_BLOCKS:
            notes.append(f"{policy}: {MAX_BLOCKS} of {len(blocks)} blocks are shown.")
        for block in blocks[:MAX_BLOCKS]:
            rates = 100 * block.draws["excess_rate"].to_numpy(float)
            if len(rates) > MAX_DRAWS:
                notes.append(
                    f"{policy}, seed {block.seed}: {MAX_DRAWS} of {len(rates)} draws are shown, at "
                    "even ranks."
                )
                ranks = np.linspace(0, len(rates) - 1, MAX_DRAWS).astype(int)
                rates = np.sort(rates)[ranks]
            data += _row(rates, block, y, policy, colours)
            ticks.append((y, str(block.seed)))
            y -= 1
    if not data:
        return None
    layout = base_layout(
        int(-y * _ROW_PX) + 90,
        xaxis=axis("excess violations, points", zeroline=True),
        yaxis=axis(
            "seed",
            tickvals=[at for at, _ in ticks],
            ticktext=[said for _, said in ticks],
            range=[y + 0.3, 0.2],
            showgrid=False,
            zeroline=False,
            fixedrange=True,
        ),
        annotations=labels,
    )
    return Figure(
        name="envelope",
        title="Each policy among its matched-random draws",
        caption=(
            "Excess: over the capture without merges. Open circles: random placements of the same "
            "number of merges, in the same corridor, "
            "on the same arrivals; the bar is their mean. Filled mark: the policy. Left is better. "
            "A policy inside its envelope "
            "has not been shown to do more than control its budget."
        ),
        alt=(
            f"Strip of excess violation rates for {len(labels)} policies, a row per block, each "
            "with its draws and the policy's own value."
        ),
        variants=[Variant("all blocks", data, layout)],
        notes=notes,
    )


def _row(rates: np.ndarray, block, y: float, policy: str, colours: Colours) -> list[dict]:
    own = 100 * float(block.policy["excess_rate"])
    traces = []
    if rates.size:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": rounded(rates),
                "y": [y] * rates.size,
                "marker": {"symbol": "circle-open", "size": 8, "color": "@control"},
                "hovertemplate": f"draw, seed {block.seed}: %{{x:.2f}} points<extra></extra>",
            }
        )
        mean = 100 * float(block.draws["excess_rate"].mean())
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": rounded([mean, mean]),
                "y": [y - 0.32, y + 0.32],
                "line": {"color": "@control", "width": 2.5},
                "hovertemplate": f"mean of the draws, seed {block.seed}: %{{x:.2f}} points"
                "<extra></extra>",
            }
        )
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "x": rounded([own]),
            "y": [y],
            "marker": {
                "symbol": colours.symbol(policy),
                "size": 12,
                "color": colours.token(policy),
                "line": {"color": "@surface", "width": 1},
            },
            "hovertemplate": f"{plain(policy)}, seed {block.seed}: %{{x:.2f}} points"
            "<extra></extra>",
        }
    )
    return traces
