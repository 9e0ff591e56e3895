"""How far the emulated tier is from the real one, on real replays that calibration never saw."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from safesync.emulator import agreement
from safesync.protocol import document as doc
from safesync.protocol.blocks import NOSYNC
from safesync.protocol.gates import count
from safesync.protocol.scores import violates
from safesync.protocol.statistics import mean_interval, pooled_sd
from safesync.tables.agreement import AGREEMENT

RATE = "violation_rate"
IDENTITY = ("run", "regime", "seed", "policy", "draw", "budget", "schedule")
_COMPARED = ("p50", "p95", "p99")
_P99_REQUESTS = 1000  # below, a p99 rests on fewer than ten requests
_NOISE_LIMIT = 2.0


@dataclass(frozen=True, eq=False)
class Twin:
    """One real replay and its emulated twins: REQUESTS of the same arrivals and schedule.

    ``identity``: the values of ``IDENTITY``; ``schedule`` is the same for repeats of one schedule.
    ``emulated``: one table per luck that the windows could have; together they are the prediction.
    ``valid``: whether it was measured within its limits; one that was not is no evidence.
    """

    identity: dict
    measured: pd.DataFrame
    emulated: Sequence[pd.DataFrame]
    valid: bool = True

    def pairs(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the measured rows once per emulated table, and those, numbered alike."""
        sides = ([self.measured] * len(self.emulated), self.emulated)
        return tuple(
            pd.concat([rows.sort_values("request_id") for rows in tables], ignore_index=True)
            for tables in sides
        )


def agreement_rows(twins: Sequence[Twin], metric: str, threshold_s: float) -> pd.DataFrame:
    """Return the AGREEMENT rows: violation rate and latency percentiles of every twin.

    Violations count over all requests, a failure as one; latencies over those that succeeded in
    the measurement. A replay without a success has no latencies to compare, and says so by
    ``lost``. Invalid ones have no rows. ``metric``, ``threshold_s``: the objective.
    """
    rows = []
    for twin in _valid(twins):
        sides = _numbered([twin])
        rates = [float(violates(requests, metric, threshold_s).mean()) for requests in sides]
        found = [(RATE, *rates, rates[1] - rates[0], np.nan)]
        lost = int((twin.measured["status"] != "ok").sum())
        if lost < len(twin.measured):
            found += [
                (
                    f"{error.metric}_{error.figure}_s",
                    error.measured_s,
                    error.emulated_s,
                    error.emulated_s - error.measured_s,
                    error.relative,
                )
                for error in agreement(*sides).errors
                if error.figure in _COMPARED
            ]
        facts = twin.identity | {"requests": len(twin.measured), "lost": lost}
        names = ("figure", "measured", "emulated", "error", "relative_error")
        rows += [facts | dict(zip(names, values, strict=True)) for values in found]
    if not rows:
        return AGREEMENT.empty()
    return pd.DataFrame(rows, columns=AGREEMENT.schema.names)


def summary(rows: pd.DataFrame, twins: Sequence[Twin], level: float) -> doc.Agreement | None:
    """Return the agreement of one regime over its schedules with merges; None without one.

    ``rows``: those of ``agreement_rows`` of the same ``twins``. Repeats of one schedule are
    averaged first; their spread is the run-to-run noise (pooled standard deviation of one run), in
    which a schedule's error is read. Latencies are pooled over the requests of all replays with
    merges; invalid ones are left out and counted. ``level``: of the interval of the mean error,
    over schedules.
    """
    rates = rows[rows["figure"] == RATE]
    merging = rates[rates["policy"] != NOSYNC]
    if merging.empty:
        return None
    schedules = merging.groupby("schedule")
    errors = (schedules["emulated"].mean() - schedules["measured"].mean()).to_numpy()
    interval = mean_interval(errors, level)
    noise = _noise(merging)
    within = None
    if noise is not None:
        within = int((np.abs(errors) <= _NOISE_LIMIT * noise + 1e-12).sum())
    with_merges = [twin for twin in twins if twin.identity["policy"] != NOSYNC]
    figures = _pooled(_valid(with_merges))
    return doc.Agreement(
        replays=len(merging),
        schedules=len(errors),
        error_points=100 * interval.mean,
        low_points=None if interval.low is None else 100 * interval.low,
        high_points=None if interval.high is None else 100 * interval.high,
        level=level,
        worst_points=100 * float(errors[np.abs(errors).argmax()]),
        noise_points=None if noise is None else 100 * noise,
        noise_nosync_points=_points(_noise(rates[rates["policy"] == NOSYNC])),
        repeated=int((schedules.size() > 1).sum()),
        within_noise=within,
        figures=figures,
        sentence=_sentence(len(merging), len(with_merges) - len(merging), interval, figures),
    )


def left_out(twins: Sequence[Twin]) -> str | None:
    """Return a sentence about the real replays that are invalid; None when there are none."""
    invalid = len(twins) - len(_valid(twins))
    if not invalid:
        return None
    return (
        f"The agreement leaves out {invalid} of {count(len(twins), 'real replay')}: measured "
        "outside the limits."
    )


def _valid(twins: Sequence[Twin]) -> list[Twin]:
    return [twin for twin in twins if twin.valid]


def _noise(rates: pd.DataFrame) -> float | None:
    """Return the standard deviation of one run's rate, pooled over repeated schedules."""
    return pooled_sd(runs.tolist() for _, runs in rates.groupby("schedule")["measured"])


def _points(rate: float | None) -> float | None:
    return None if rate is None else 100 * rate


def _numbered(twins: Sequence[Twin]) -> list[pd.DataFrame]:
    """Return measured and emulated rows of several twins, as one replay each."""
    sides = zip(*(twin.pairs() for twin in twins), strict=True)
    joined = [pd.concat(tables, ignore_index=True) for tables in sides]
    return [rows.assign(request_id=np.arange(len(rows))) for rows in joined]


def _pooled(twins: Sequence[Twin]) -> list[doc.AgreementFigure]:
    requests = sum(int((twin.measured["status"] == "ok").sum()) for twin in twins)
    if not requests:
        return []
    return [
        doc.AgreementFigure(
            figure=f"{error.metric}_{error.figure}_s",
            requests=requests,
            measured=error.measured_s,
            emulated=error.emulated_s,
            relative_error=error.relative,
        )
        for error in agreement(*_numbered(twins)).errors
        if error.figure in _COMPARED and (error.figure != "p99" or requests >= _P99_REQUESTS)
    ]


def _sentence(replays: int, invalid: int, interval, figures: Sequence[doc.AgreementFigure]) -> str:
    said = f"{100 * interval.mean:+z.1f} points"
    if interval.low is not None:
        said += (
            f" ({interval.level:.0%} interval {100 * interval.low:+z.1f} to "
            f"{100 * interval.high:+z.1f})"
        )
    latencies = [
        f"{figure.figure.removesuffix('_s').replace('_', ' ')} by {figure.relative_error:+z.0%}"
        for figure in figures
        if figure.figure in ("e2e_p95_s", "e2e_p99_s", "ttft_p95_s")
    ]
    return (
        f"Against {count(replays, 'real replay')} that calibration never saw"
        + (f" ({invalid} invalid left out)" if invalid else "")
        + f", the emulator's violation rate is off by {said} on average"
        + (f", its pooled {', '.join(latencies)}" if latencies else "")
        + "."
    )
