"""Envelope: where each policy stands among the matched-random draws of its own budget."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from safesync.protocol.blocks import Block, collect, is_policy
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
from safesync.report.wording import signed

MAX_BLOCKS = 12
MAX_DRAWS = 60  # with more in every block, a row is their distribution
# what is read of a row of SCORES
COLUMNS = ["tier", "regime", "seed", "policy", "control_of", "draw", "budget", "excess_rate"]
_BINS = 40
_ROW_PX = 26
_HEAD_PX = 28
_AREA = 1.3  # height of a distribution, in rows


def envelope(
    scores: pd.DataFrame,
    tier: str,
    regime: str,
    policies: Sequence[str],
    colours: Colours,
    oracles: Collection[str] = (),
) -> Figure | None:
    """Return the envelope of one (tier, regime) from its judge rows; None without a policy.

    ``oracles``: policies whose schedules meet the fewest requests that any of their budget meets;
    they are marked on the rows of the other policies of that budget.
    """
    data, labels, ticks, notes, said = [], [], [], [], []
    y = 0.0
    scores = scores.loc[(scores["tier"] == tier) & (scores["regime"] == regime), COLUMNS]
    optima = _optima(scores, oracles)
    marked = False
    for policy in filter(is_policy, policies):
        blocks = collect(scores, tier, regime, policy)
        if not blocks:
            continue
        y -= _HEAD_PX / _ROW_PX
        labels.append(row_label(_heading(policy, blocks), y + 0.55, 0))
        said.append(_in_words(policy, blocks))
        best = [optima.get((block.seed, int(block.policy["budget"]))) for block in blocks]
        if min(len(block.draws) for block in blocks) > MAX_DRAWS:
            foot = y - 0.9
            data += _distribution(policy, blocks, best, foot, colours)
            marked = marked or None not in best
            ticks.append((foot + _AREA / 4, "all" if len(blocks) > 1 else str(blocks[0].seed)))
            notes.append(
                f"{tier}: a row is the mean over {count(len(blocks), 'block')}, its area the "
                "distribution of that mean over the draws; the tables of the verdicts hold each "
                "block."
            )
            y = foot - 0.4
            continue
        if len(blocks) > MAX_BLOCKS:
            notes.append(f"{policy}: {MAX_BLOCKS} of {len(blocks)} blocks are shown.")
        for block, optimum in list(zip(blocks, best, strict=True))[:MAX_BLOCKS]:
            rates = 100 * block.draws["excess_rate"].to_numpy(float)
            if len(rates) > MAX_DRAWS:
                notes.append(
                    f"{policy}, seed {block.seed}: {MAX_DRAWS} of {len(rates)} draws are shown, at "
                    "even ranks."
                )
                ranks = np.linspace(0, len(rates) - 1, MAX_DRAWS).astype(int)
                rates = np.sort(rates)[ranks]
            data += _row(rates, block, optimum, y, policy, colours)
            marked = marked or optimum is not None
            ticks.append((y, str(block.seed)))
            y -= 1
    if not data:
        return None
    if marked:
        notes.append(
            "Dashed: the optimum, the schedule of as many merges that meets the fewest requests of "
            "all, as it fared here."
        )
    layout = base_layout(
        int(-y * _ROW_PX) + 90,
        xaxis=axis("excess violations, points", zeroline=True),
        yaxis=axis(
            "seed",
            tickvals=[at for at, _ in ticks],
            ticktext=[text for _, text in ticks],
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
        alt=f"Excess violation rates, mean over blocks: {'; '.join(said)}.",
        variants=[Variant("all blocks", data, layout)],
        notes=list(dict.fromkeys(notes)),
    )


def _optima(scores: pd.DataFrame, oracles: Collection[str]) -> Mapping[tuple[int, int], float]:
    """Return (seed, budget) -> excess rate of the oracle there."""
    rows = scores[scores["policy"].isin(set(oracles)) & (scores["draw"] == 0)]
    keys = zip(rows["seed"].astype(int), rows["budget"].astype(int), strict=True)
    return dict(zip(keys, rows["excess_rate"].astype(float), strict=True))


def _heading(policy: str, blocks: Sequence[Block]) -> str:
    budgets = sorted({int(block.policy["budget"]) for block in blocks})
    said = " or ".join([*map(str, budgets[:-1]), count(budgets[-1], "merge")])
    without = "" if any(len(block.draws) for block in blocks) else ", no draws of its own"
    return f"<b>{plain(policy)}</b>, {said}{without}"


def _in_words(policy: str, blocks: Sequence[Block]) -> str:
    own = 100 * np.mean([float(block.policy["excess_rate"]) for block in blocks])
    drawn = [block.draws["excess_rate"].mean() for block in blocks if len(block.draws)]
    among = f", its draws {signed(100 * float(np.mean(drawn)))}" if drawn else ""
    return f"{policy} {signed(own)} points{among}"


def _distribution(
    policy: str,
    blocks: Sequence[Block],
    best: Sequence[float | None],
    foot: float,
    colours: Colours,
) -> list[dict]:
    """Return the distribution of the draws' mean over blocks, and the policy's mean on it.

    Draws of different blocks have nothing in common, so any pairing of them is one more draw of
    the mean.
    """
    draws = min(len(block.draws) for block in blocks)
    rates = [block.draws["excess_rate"].to_numpy(float)[:draws] for block in blocks]
    means = 100 * np.mean(rates, axis=0)
    own = 100 * float(np.mean([float(block.policy["excess_rate"]) for block in blocks]))
    counts, edges = np.histogram(means, _BINS)
    heights = foot + _AREA * counts / counts.max()
    middles = (edges[:-1] + edges[1:]) / 2
    where = f"mean of {count(len(blocks), 'block')}"
    as_low = (means <= own + 1e-9).mean()
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": rounded([edges[0], *middles, edges[-1]]),
            "y": rounded([foot, *heights, foot]),
            "fill": "toself",
            "fillcolor": "@control/0.25",
            "line": {"color": "@control", "width": 1.5},
            "hoverinfo": "skip",
        },
        _upright(
            float(means.mean()), foot, foot + _AREA, "solid", f"mean of {draws} draws, {where}"
        ),
    ]
    if None not in best:
        optimum = 100 * float(np.mean(best))
        traces.append(_upright(optimum, foot, foot + _AREA, "dash", f"optimum, {where}"))
    said = f"{where}, as low in {as_low:.1%} of draws"
    return [*traces, _mark(own, foot + _AREA / 4, policy, colours, said)]


def _row(
    rates: np.ndarray,
    block: Block,
    optimum: float | None,
    y: float,
    policy: str,
    colours: Colours,
) -> list[dict]:
    where = f"seed {block.seed}"
    traces = []
    if rates.size:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": rounded(rates),
                "y": [y] * rates.size,
                "marker": {"symbol": "circle-open", "size": 8, "color": "@control"},
                "hovertemplate": f"draw, {where}: %{{x:.2f}} points<extra></extra>",
            }
        )
        mean = 100 * float(block.draws["excess_rate"].mean())
        traces.append(_upright(mean, y - 0.32, y + 0.32, "solid", f"mean of the draws, {where}"))
    if optimum is not None:
        traces.append(_upright(100 * optimum, y - 0.42, y + 0.42, "dash", f"optimum, {where}"))
    own = 100 * float(block.policy["excess_rate"])
    return [*traces, _mark(own, y, policy, colours, where)]


def _upright(at: float, low: float, high: float, dash: str, said: str) -> dict:
    """Return a vertical line: the mean of the draws (solid) or the optimum (dash)."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": rounded([at, at]),
        "y": rounded([low, high]),
        "line": {
            "color": "@ink" if dash == "dash" else "@control",
            "width": 1.5 if dash == "dash" else 2.5,
            "dash": dash,
        },
        "hovertemplate": f"{said}: %{{x:.2f}} points<extra></extra>",
    }


def _mark(at: float, y: float, policy: str, colours: Colours, said: str) -> dict:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": rounded([at]),
        "y": rounded([y]),
        "marker": {
            "symbol": colours.symbol(policy),
            "size": 12,
            "color": colours.token(policy),
            "line": {"color": "@surface", "width": 1},
        },
        "hovertemplate": f"{plain(policy)}, {said}: %{{x:.2f}} points<extra></extra>",
    }
