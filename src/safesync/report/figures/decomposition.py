"""Budget and placement: what of a policy's advantage is merging less, and what is choosing when."""

from collections.abc import Sequence

from safesync.protocol.gates import OVERLAP_TIER
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
from safesync.report.wording import signed

MAX_SPLITS = 10
_ROW_PX = 24
_GROUP_ROWS = 4.6
_EFFECTS = ("budget", "placement", "total")


def decomposition(results: Sequence[dict], colours: Colours) -> Figure | None:
    """Return the bars of one (tier, regime) from policy results; None without a decomposition."""
    found = [(result["policy"], part) for result in results for part in result["decomposition"]]
    if not found:
        return None
    parts = found[:MAX_SPLITS]
    notes = [f"{MAX_SPLITS} of {len(found)} are drawn."] if len(parts) < len(found) else []
    data, labels, ticks = [], [], []
    for place, (policy, part) in enumerate(parts):
        top = -place * _GROUP_ROWS
        text = f"<b>{plain(policy)}</b> against {plain(part['baseline'])}"
        labels.append(row_label(text, top - 0.35, 0))
        for row, (name, token) in enumerate(
            zip(_EFFECTS, ("@control", colours.token(policy), "@ink/0.8"), strict=True), start=1
        ):
            value = part[f"{name}_points"]
            y = top - row
            ticks.append((y, name))
            data.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "x": rounded([value]),
                    "y": [y],
                    "width": 0.62,
                    "marker": {"color": token},
                    "text": [signed(value)],
                    "textposition": "outside",
                    "textfont": {"color": "@ink", "size": 12},
                    "cliponaxis": False,
                    "hovertemplate": f"{plain(policy)}, {name} effect against "
                    f"{plain(part['baseline'])}: %{{x:.2f}} points<extra></extra>",
                }
            )
    overlapped = results[0]["tier"] == OVERLAP_TIER
    unit = "overlapped requests, % of all" if overlapped else "violation rate"
    values = [part[f"{name}_points"] for _, part in parts for name in _EFFECTS]
    low, high = min(0.0, *values), max(0.0, *values)
    room = 0.35 * max(0.1, high - low)  # for a number beside its bar, on a phone too
    layout = base_layout(
        int(len(parts) * _GROUP_ROWS * _ROW_PX) + 70,
        xaxis=axis(f"points of {unit}; negative is better", zeroline=True)
        | {"zerolinecolor": "@muted", "range": [low - room, high + room]},
        yaxis=axis(
            None,
            tickvals=[at for at, _ in ticks],
            ticktext=[said for _, said in ticks],
            range=[-len(parts) * _GROUP_ROWS + 0.6, 0.8],
            showgrid=False,
            zeroline=False,
            fixedrange=True,
        ),
        annotations=labels,
        barmode="overlay",
    )
    return Figure(
        name="decomposition",
        title="Budget effect and placement effect",
        caption=(
            "policy \u2212 baseline = (matched random \u2212 baseline) + (policy \u2212 matched "
            "random). The first term is what merging at another rate does; only the second is the "
            "policy's choice of windows, and only it can earn a claim."
        ),
        alt="Bars of budget, placement and total effect: "
        + "; ".join(
            f"{policy} against {part['baseline']}: {_said(part)} points" for policy, part in parts
        )
        + ".",
        variants=[Variant("all blocks", data, layout)],
        notes=notes,
    )


def _said(part: dict) -> str:
    return ", ".join(f"{name} {signed(part[f'{name}_points'])}" for name in _EFFECTS)
