"""Loss curves of the training runs, with a mark at every merge."""

from collections.abc import Sequence

import numpy as np

from safesync.protocol.blocks import CONTROL
from safesync.protocol.gates import count
from safesync.report.figures.base import (
    Colours,
    Figure,
    Variant,
    axis,
    base_layout,
    legend_above,
    packed,
    plain,
    rounded,
)
from safesync.report.training import TrainingRun, final_losses, in_order

_BINS = 120


def training_figure(
    runs: Sequence[TrainingRun], policies: Sequence[str], colours: Colours
) -> Figure | None:
    """Return the curves of one regime, a variant per block and training seed; None without one."""
    groups: dict[tuple[int, int], list[TrainingRun]] = {}
    for run in in_order(runs, policies):
        groups.setdefault((run.facts["seed"], run.facts["training_seed"]), []).append(run)
    if not groups:
        return None
    return Figure(
        name="training",
        title="Training on these schedules",
        caption=(
            "Thick lines: loss of the merged model on held-out data, with a mark at every merge; "
            "the last mark is the merge that closes the training. Thin lines: mean training loss "
            "of the islands, averaged over neighbouring steps. Within one choice all runs start "
            "from the same parameters and read the same data; only the merges differ. The axis "
            "leaves out what lies above the first merge."
        ),
        alt=_alt(runs, policies),
        variants=[
            _variant(f"block {block}, training seed {seed}", members, colours)
            for (block, seed), members in sorted(groups.items())
        ],
    )


def _variant(label: str, runs: Sequence[TrainingRun], colours: Colours) -> Variant:
    data: list[dict] = []
    named: set[str] = set()
    seen = []
    for run in sorted(runs, key=lambda run: run.policy != CONTROL):  # policies are drawn on top
        group = f"{run.policy}, {count(run.budget, 'merge')}"
        steps, losses = _binned(run)
        held = run.facts["heldout"]
        first = next((one["step"] for one in held[1:]), 0)
        seen += [one["loss"] for one in held[1:]] + losses[steps >= first].tolist()
        colour = colours.token(run.policy)
        drawn = f", draw {run.facts['draw']}" if run.policy == CONTROL else ""
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "legendgroup": group,
                "showlegend": False,
                "x": packed(steps, "f4"),
                "y": packed(losses, "f4"),
                "line": {"color": f"{colour}/0.35", "width": 1},
                "hoverinfo": "skip",
            }
        )
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": plain(group),
                "legendgroup": group,
                "showlegend": group not in named,
                "x": [one["step"] for one in held],
                "y": rounded((one["loss"] for one in held), 4),
                "line": {"color": colour, "width": 2},
                "marker": {
                    "symbol": colours.symbol(run.policy),
                    "color": colour,
                    "size": [0, *[8] * (len(held) - 1)],  # nothing was merged at the start
                    "opacity": 1,
                    "line": {"width": [0, *[1] * (len(held) - 1)], "color": colour},
                },
                "hovertemplate": f"{plain(group)}{drawn}, step %{{x}}: held-out loss %{{y:.4f}}"
                "<extra></extra>",
            }
        )
        named.add(group)
    low, high = min(seen), max(seen)
    pad = 0.06 * (high - low) or 0.1
    layout = base_layout(
        420,
        showlegend=True,
        legend=legend_above(),
        xaxis=axis("inner step", zeroline=False),
        yaxis=axis("loss, nats per token", range=[low - pad, high + pad], zeroline=False),
    )
    return Variant(label, data, layout)


def _binned(run: TrainingRun) -> tuple[np.ndarray, np.ndarray]:
    """Return steps and mean losses over islands and neighbouring steps, at most ``_BINS`` each."""
    rows = run.losses
    bins = (rows["step"] - rows["step"].min()) * _BINS // (np.ptp(rows["step"]) + 1)
    means = rows.groupby(bins)[["step", "loss"]].mean()
    return means["step"].to_numpy(), means["loss"].to_numpy()


def _alt(runs: Sequence[TrainingRun], policies: Sequence[str]) -> str:
    table = final_losses(runs, policies)
    means: dict[str, list[float]] = {}
    for row in table["rows"]:
        means.setdefault(row["policy"], []).append(row["mean"])
    said = "; ".join(f"{policy} {np.mean(found):.4f}" for policy, found in means.items())
    return (
        f"Loss by inner step of {count(len(runs), 'training run')}, with a mark per merge. Final "
        f"held-out loss, mean over runs, nats per token: {said}."
    )
