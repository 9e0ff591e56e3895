"""Effect-size transfer: how much longer exposed requests take, measured and as the model says."""

from collections.abc import Mapping

from safesync.report.figures.base import (
    Figure,
    Variant,
    axis,
    base_layout,
    legend_above,
    rounded,
    row_label,
)

_NAMES = (("mean", "mean slowdown of exposed requests"), ("p95", "ratio of their p95 latencies"))


def transfer_figure(document: Mapping, tolerance: float) -> Figure | None:
    """Return the figure of one regime; None where too few windows met requests.

    ``document``: as ``protocol.transfer.transfer_document`` returns it. ``tolerance``: relative, of
    the model's effect from the observed one.
    """
    effects = document["effects"]
    observed, low, predicted = (effects[name] for name in ("observed", "low", "predicted"))
    if observed is None:
        return None
    limit = document["gate"]["limit"]
    rows = {name: -row for row, (name, _) in enumerate(_NAMES)}
    data = [
        *(_tolerated(observed[name], tolerance, y, not y) for name, y in rows.items() if predicted),
        *(_lower_end(low[name], observed[name], y, not y) for name, y in rows.items()),
        _marks("measured", observed, rows, "circle", "@ink"),
    ]
    if predicted:
        data.append(_marks("emulated", predicted, rows, "diamond", "@c1"))
    ends = [1.0, limit, *low.values(), *(predicted or observed).values()]
    ends += [(1 + tolerance) * value for value in observed.values()]
    pad = 0.05 * (max(ends) - min(ends))
    layout = base_layout(
        300,
        showlegend=True,
        legend=legend_above(),
        xaxis=axis(
            "times as long as without merges",
            range=[min(ends) - pad, max(ends) + pad],
            zeroline=False,
        ),
        yaxis=axis(
            None,
            range=[-1.7, 0.75],
            showticklabels=False,
            showgrid=False,
            zeroline=False,
            fixedrange=True,
        ),
        annotations=[
            *(
                row_label(said, rows[name] + 0.2, 0) | {"bgcolor": "@surface"}
                for name, said in _NAMES
            ),
            {
                "text": f"limit {limit:.2f}",
                "x": limit,
                "y": 0,
                "yref": "paper",
                "xanchor": "left",
                "yanchor": "bottom",
                "xshift": 4,
                "showarrow": False,
                "font": {"size": 12, "color": "@violation"},
            },
        ],
        shapes=[
            {
                "type": "line",
                "x0": limit,
                "x1": limit,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"color": "@violation", "width": 1.5, "dash": "dash"},
            }
        ],
    )
    return Figure(
        name="transfer",
        title="What merges do to exposed requests, measured and emulated",
        caption=(
            "Exposed: the request's interval in the run without merges meets a merge window; each "
            "is compared with itself without merges. Both lower ends (bootstrap over windows) must "
            "reach the limit, and the emulated effects must lie within the tolerance of the "
            "measured ones."
        ),
        alt=_alt(effects, limit),
        variants=[Variant("all windows", data, layout)],
        notes=[] if predicted else ["There is no emulated effect: the model is not calibrated."],
    )


def _marks(name: str, effect: Mapping, rows: Mapping, symbol: str, token: str) -> dict:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": rounded(effect[key] for key in rows),
        "y": list(rows.values()),
        "marker": {
            "symbol": symbol,
            "size": 12,
            "color": token,
            "line": {"color": "@surface", "width": 1},
        },
        "hovertemplate": f"{name}: %{{x:.2f}} times<extra></extra>",
    }


def _lower_end(low: float, observed: float, y: float, named: bool) -> dict:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "lower end",
        "legendgroup": "low",
        "showlegend": named,
        "x": rounded([low, observed]),
        "y": [y, y],
        "line": {"color": "@ink", "width": 2},
        "hovertemplate": "lower end %{x:.2f}<extra></extra>",
    }


def _tolerated(observed: float, tolerance: float, y: float, named: bool) -> dict:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"tolerance, {tolerance:.0%}",
        "legendgroup": "tolerance",
        "showlegend": named,
        "x": rounded([observed * (1 - tolerance), observed * (1 + tolerance)]),
        "y": [y, y],
        "line": {"color": "@c1/0.25", "width": 14},
        "hoverinfo": "skip",
    }


def _alt(effects: Mapping, limit: float) -> str:
    predicted = effects["predicted"]
    said = "; ".join(
        f"{words}: measured {effects['observed'][name]:.2f}, lower end {effects['low'][name]:.2f}"
        + (f", emulated {predicted[name]:.2f}" if predicted else ", not emulated")
        for name, words in _NAMES
    )
    return f"{said}; limit {limit:.2f}; {effects['windows']} merge windows met requests."
