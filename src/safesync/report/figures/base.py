"""What all figures share: the record, the layout, the colours of policies."""

import base64
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from safesync.protocol.blocks import CAPTURES, SPACING, is_control, is_policy
from safesync.report.replay import Replay

SERIES = 7  # tokens @c1 .. @c7 of the style sheet
_SYMBOLS = ("diamond", "circle", "square", "triangle-up", "star", "pentagon", "hexagon")


@dataclass(frozen=True)
class Variant:
    """One view of a figure (one block of it); ``label`` is what the reader chooses it by."""

    label: str
    data: list[dict]
    layout: dict


@dataclass(frozen=True)
class Figure:
    """A figure of the page: ``alt`` says in words what it shows, ``notes`` what was left out.

    ``details``: a list to unfold below it, under ``details_title``. ``shared_axis``: figures of a
    regime with the same one show the same block and the same stretch of it; empty: none.
    """

    name: str
    title: str
    caption: str
    alt: str
    variants: list[Variant]
    notes: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    details_title: str = ""
    shared_axis: str = ""

    @property
    def specs(self) -> list[dict]:
        """The variants as the page's script reads them."""
        return [{"data": variant.data, "layout": variant.layout} for variant in self.variants]


class Colours:
    """Token and symbol of every policy; controls and captures are neutral."""

    def __init__(self, policies: Sequence[str]):
        self._places = {policy: place for place, policy in enumerate(dict.fromkeys(policies))}

    def token(self, policy: str) -> str:
        """Return the colour token of ``policy``."""
        if is_control(policy):
            return "@control"
        if policy in CAPTURES:
            return "@muted"
        return f"@c{self._places.get(policy, 0) % SERIES + 1}"

    def symbol(self, policy: str) -> str:
        """Return the marker of ``policy``, so that colour is never the only difference."""
        if policy.startswith(SPACING):
            return "square-open"
        if not is_policy(policy):
            return "circle-open"
        return _SYMBOLS[self._places.get(policy, 0) % len(_SYMBOLS)]


def base_layout(height: int, **changes) -> dict:
    """Return the layout that all figures start from, ``height`` in pixels."""
    layout = {
        "height": height,
        "margin": {"l": 48, "r": 16, "t": 30, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "@ink", "size": 13},
        "hoverlabel": {"bgcolor": "@raised", "bordercolor": "@line", "font": {"color": "@ink"}},
        "showlegend": False,
        "hovermode": "closest",
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "@muted", "activecolor": "@accent"},
    }
    return layout | changes


def legend_above() -> dict:
    """Return a legend that wraps above the plot."""
    return {
        "orientation": "h",
        "x": 0,
        "xanchor": "left",
        "y": 1.02,
        "yanchor": "bottom",
        "font": {"color": "@ink"},
    }


def axis(title: str | None = None, **changes) -> dict:
    """Return an axis in the page's manner; ``title`` carries the unit."""
    made = {
        "gridcolor": "@line",
        "zerolinecolor": "@line",
        "linecolor": "@line",
        "tickfont": {"color": "@muted", "size": 12},
        "automargin": True,
    }
    if title:
        made["title"] = {"text": title, "font": {"color": "@muted", "size": 12}, "standoff": 8}
    return made | changes


def row_label(text: str, y: float, shift: int, yref: str = "y") -> dict:
    """Return a label that stands above a row, inside the plot: no margin is spent on names."""
    return {
        "text": text,
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "y": y,
        "yref": yref,
        "yanchor": "bottom",
        "yshift": shift,
        "showarrow": False,
        "align": "left",
        "font": {"size": 12, "color": "@ink"},
    }


def plain(text: object) -> str:
    """Return ``text`` for Plotly, which reads its labels as HTML."""
    return html.escape(str(text), quote=False)


def rounded(values: Iterable[float], digits: int = 3) -> list[float | None]:
    """Return finite numbers rounded for the page, None for the rest."""
    return [round(float(v), digits) if np.isfinite(v) else None for v in values]


def packed(values: np.ndarray, kind: str) -> dict[str, str]:
    """Return numbers as Plotly's typed array of ``kind`` (i2, f4), at a third of their text."""
    little = np.asarray(values).astype(f"<{kind}")
    return {"dtype": kind, "bdata": base64.b64encode(little.tobytes()).decode("ascii")}


def order(replays: Iterable[Replay], policies: Sequence[str]) -> list[Replay]:
    """Return the replays as a reader looks for them: policies as listed, then the controls."""
    places = {policy: place for place, policy in enumerate(policies)}
    last = len(places)
    return sorted(
        replays,
        key=lambda r: (
            places.get(r.policy, last + r.is_control),
            r.budget if r.is_control else 0,
            r.policy,
            r.seed,
            r.draw,
        ),
    )
