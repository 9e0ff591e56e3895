"""Gate 2, effect-size transfer: merges hurt the real sidecar, and the model predicts by how much.

A request is exposed when its interval in the run *without* merges meets a merge window: its own
slowness must not decide that. Exposed requests are paired with themselves without merges. Two
effects are read off the pairs: the ratio of the 95 % quantiles of latency, and the mean slowdown
(a request's latency with merges over that without). Their lower ends come from a bootstrap over
merge windows, not over requests: the requests of one window share its contention.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from safesync.protocol.gates import Gate, Scope, count
from safesync.protocol.percentiles import percentile
from safesync.protocol.scores import exposed, metric_s

NAME = "effect-size transfer"
MIN_WINDOWS = 20
RESAMPLES = 2000
_SEED = 0
_QUANTILE = 0.95
_SLACK = 1e-12  # as in the other gates: a figure computed in floating point passes at its limit


@dataclass(frozen=True)
class Pairs:
    """Exposed requests, a row per pair: latencies in seconds, and the window that it first met.

    ``predicted_s`` and ``predicted_without_s``: the emulated twins of ``with_s`` and ``without_s``;
    None without a calibrated model. ``lost``: pairs left out because a side did not succeed.
    """

    window: np.ndarray
    with_s: np.ndarray
    without_s: np.ndarray
    predicted_s: np.ndarray | None
    predicted_without_s: np.ndarray | None
    windows: int
    lost: int


@dataclass(frozen=True)
class Effect:
    """How much longer exposed requests take: ratios with and without merges."""

    p95: float
    mean: float

    def off(self, other: "Effect") -> float:
        """Return the largest relative distance of this effect from ``other``."""
        return max(abs(self.p95 / other.p95 - 1), abs(self.mean / other.mean - 1))


def paired(
    requests: pd.DataFrame,
    nosync: pd.DataFrame,
    windows: Sequence[tuple[float, float]],
    metric: str,
    predicted: pd.DataFrame | None = None,
    predicted_nosync: pd.DataFrame | None = None,
) -> Pairs:
    """Return the pairs of one replay.

    ``requests``, ``nosync``: REQUESTS of the replay and of its block's run without merges.
    ``windows``: (start, end) of its merges, seconds. ``metric``: the latency that is judged.
    ``predicted``, ``predicted_nosync``: REQUESTS of the emulated twins. A request that meets two
    windows counts once, with the first. Without a latency on both sides (failed; no TPOT) a pair is
    left out.
    """
    ids = nosync["request_id"].to_numpy()
    met = exposed(nosync, *np.reshape(windows, (-1, 2)).T)
    # a last row that meets all requests stands for no window
    first = np.vstack([met, np.ones(len(ids), dtype=bool)]).argmax(axis=0)
    within = first < len(windows)

    def latency_s(rows: pd.DataFrame | None) -> np.ndarray | None:
        if rows is None:
            return None
        return pd.Series(metric_s(rows, metric), index=rows["request_id"]).loc[ids].to_numpy()

    sides = [latency_s(rows) for rows in (requests, nosync, predicted, predicted_nosync)]
    known = np.isfinite(sides[0]) & np.isfinite(sides[1])
    used = within & known
    kept = [None if side is None else side[used] for side in sides]
    return Pairs(first[used], *kept, windows=len(windows), lost=int((within & ~known).sum()))


def pool(replays: Sequence[Pairs]) -> Pairs:
    """Return the pairs of several replays as those of one, with their windows numbered through."""
    starts = np.cumsum([0, *(pairs.windows for pairs in replays)])

    def joined(name: str) -> np.ndarray | None:
        parts = [getattr(pairs, name) for pairs in replays]
        return None if any(part is None for part in parts) else np.concatenate([[], *parts])

    windows = [pairs.window + start for pairs, start in zip(replays, starts, strict=False)]
    return Pairs(
        np.concatenate([np.empty(0, dtype=np.int64), *windows]).astype(np.int64),
        joined("with_s"),
        joined("without_s"),
        joined("predicted_s"),
        joined("predicted_without_s"),
        windows=int(starts[-1]),
        lost=sum(pairs.lost for pairs in replays),
    )


def effect(with_s: np.ndarray, without_s: np.ndarray) -> Effect:
    """Return the effect in pairs of latencies, shape (n,) each, n > 0."""
    return Effect(
        percentile(with_s, _QUANTILE) / percentile(without_s, _QUANTILE),
        float((with_s / without_s).mean()),
    )


def lower_ends(pairs: Pairs, level: float) -> Effect:
    """Return the lower ends of the two-sided ``level`` intervals of both effects.

    Percentile bootstrap over windows (Efron and Tibshirani 1993, chapter 13): each resample draws
    as many windows as met a request, with replacement, and pools their pairs.
    """
    clusters = [np.flatnonzero(pairs.window == window) for window in np.unique(pairs.window)]
    rng = np.random.default_rng(_SEED)
    found = np.empty((RESAMPLES, 2))
    for row in range(RESAMPLES):
        drawn = rng.integers(len(clusters), size=len(clusters))
        chosen = np.concatenate([clusters[number] for number in drawn])
        one = effect(pairs.with_s[chosen], pairs.without_s[chosen])
        found[row] = one.p95, one.mean
    low = np.quantile(found, (1 - level) / 2, axis=0)
    return Effect(float(low[0]), float(low[1]))


@dataclass(frozen=True)
class Effects:
    """The effects of one regime; None where too few windows met requests, or without a model.

    ``windows``: merge windows that met a request. ``low``: lower ends of ``observed``.
    """

    windows: int
    low: Effect | None
    observed: Effect | None
    predicted: Effect | None


def transfer(
    found: Effects,
    *,
    delta: float,
    tolerance: float,
    why_unpredicted: str = "no model was calibrated",
) -> Gate:
    """Return the gate of one regime from its effects.

    Below ``MIN_WINDOWS`` windows nothing is computed. Both lower ends must reach 1 + ``delta``.
    What is predicted must be within ``tolerance`` (relative) of what was observed; None: there is
    no model, for the reason ``why_unpredicted``. Figure: the lower of the two lower ends, limit
    1 + delta.
    """
    windows, low, observed, predicted = found.windows, found.low, found.observed, found.predicted
    limit = 1 + delta
    if windows < MIN_WINDOWS:
        return Gate(
            NAME,
            None,
            None,
            limit,
            f"Not computable: {count(windows, 'merge window')} of probes and matched-random "
            f"replays met requests, {MIN_WINDOWS} are needed.",
        )
    figure = min(low.p95, low.mean)
    seen = (
        f"In {count(windows, 'merge window')} exposed requests took {observed.mean:.2f} times as "
        f"long (lower end {low.mean:.2f}), their p95 {observed.p95:.2f} times ({low.p95:.2f}); "
        f"limit {limit:.2f}."
    )
    if figure < limit - _SLACK:
        return Gate(NAME, False, figure, limit, f"Merges do not hurt enough to judge. {seen}")
    if predicted is None:
        said = f"{seen} Whether the model predicts that is open: {why_unpredicted}"
        return Gate(NAME, None, figure, limit, f"{said.rstrip('.')}.")
    off = predicted.off(observed)
    said = (
        f"{seen} The emulator says {predicted.mean:.2f} and {predicted.p95:.2f}: off by at most "
        f"{off:.0%}, tolerance {tolerance:.0%}."
    )
    return Gate(NAME, off <= tolerance + _SLACK, figure, limit, said)


def effects(replays: Sequence[Pairs], level: float) -> Effects:
    """Return the effects in the pairs of a regime's probes and matched-random replays.

    ``level``: of the intervals whose lower ends are returned.
    """
    pairs = pool(replays)
    windows = np.unique(pairs.window).size
    if windows < MIN_WINDOWS:
        return Effects(windows, None, None, None)
    predicted = None
    if pairs.predicted_s is not None:
        predicted = effect(pairs.predicted_s, pairs.predicted_without_s)
    return Effects(
        windows, lower_ends(pairs, level), effect(pairs.with_s, pairs.without_s), predicted
    )


def transfer_document(regime: str, gate: Gate, found: Effects) -> dict:
    """Return the gate and what it rests on as a JSON document."""
    return {"regime": regime, "gate": asdict(gate), "effects": asdict(found)}


def transfer_gate(document: Mapping) -> tuple[Scope, Gate]:
    """Return the gate of a document, and the verdicts that it belongs to: all of its regime."""
    return Scope(regime=document["regime"]), Gate(**document["gate"])
