"""What a policy can see of a block: its nosync capture and the learners, cut off at "now".

Nothing here computes with rows stamped at or after the instant of an observation, nor normalises
by figures of the whole capture: the references are config. ``ObservedTrace.replaced_after`` lets an
audit check that, by exchanging everything after a cut.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import pandas as pd

from safesync.placement import Corridor
from safesync.policies.base import Observation, Signals

SIGNALS = ("network", "serving", "checkpoint")
#: an older last row means that the signal is missing: ten rows lost at 5 Hz
MAX_AGE_S = 2.0


@dataclass(frozen=True, eq=False)
class ObservedTrace:
    """The observable events of one block; ``observe`` is the only way in for policies.

    ``arrival_s``, ``done_s``: shape (requests,), by request. ``telemetry_s``: shape (rows,),
    rising; ``pressures``: shape (3, rows), in [0, 1], in the order of ``SIGNALS``. ``loss`` [nats]
    and ``tokens`` (cumulative): shape (islands, steps), column s - 1 after s inner steps.
    """

    arrival_s: np.ndarray
    done_s: np.ndarray
    telemetry_s: np.ndarray
    pressures: np.ndarray
    loss: np.ndarray
    tokens: np.ndarray

    @property
    def islands(self) -> int:
        """Number of learners."""
        return len(self.loss)

    @property
    def inert(self) -> tuple[str, ...]:
        """Names of the signals without variance in this capture: no policy can react to them."""
        flat = np.ptp(self.pressures, axis=1) == 0
        return tuple(name for name, inert in zip(SIGNALS, flat, strict=True) if inert)

    def observe(self, corridor: Corridor, last_step: int, gap: int, merges: int) -> Observation:
        """Return what is known ``gap`` inner steps after the last of ``merges`` merges.

        ``last_step`` is the inner steps done at that merge, 0 before the first.

        Raises ValueError when telemetry or learners do not reach that instant.
        """
        grid = corridor.grid
        step = last_step + gap
        now_s = (step + merges * grid.pause) * corridor.step_s
        if step > self.loss.shape[1]:
            raise ValueError(
                f"learners: the table ends at step {self.loss.shape[1]}, step {step} is missing"
            )
        # overlapped merges: the gap runs from the merge's start, the islands leave it at its end
        stale_steps = gap - (grid.merge - grid.pause if merges else 0)
        arrived = int(np.searchsorted(self._arrivals_sorted, now_s, side="left"))
        done = int(np.searchsorted(self._done_sorted, now_s, side="left"))
        return Observation(
            now_s=now_s,
            step=step,
            gap=gap,
            merges=merges,
            h_min=corridor.h_min,
            h_max=corridor.h_max,
            step_s=corridor.step_s,
            merge_s=corridor.merge_s,
            horizon_s=corridor.horizon_s,
            counts_per_s=self._counts_per_s[: int(now_s)],
            in_flight=arrived - done,
            signals=self._signals(now_s),
            loss_drop=self._loss_drop(last_step, step),
            tokens=self._tokens_from_start[:, step] - self._tokens_from_start[:, last_step],
            staleness_s=np.full(self.islands, stale_steps * corridor.step_s),
        )

    def replaced_after(self, cut_s: float, cut_step: int, other: ObservedTrace) -> ObservedTrace:
        """Return this trace with all that is stamped at or after ``cut_s`` taken from ``other``.

        Requests of this trace that are in flight at the cut end there; learner rows after
        ``cut_step`` (the inner steps done at the cut) come from ``other``, which must have as many
        islands. No observation up to and including ``cut_s`` may tell the difference.
        """
        if other.islands != self.islands:
            raise ValueError(f"traces of {self.islands} and {other.islands} islands don't join")
        arrived, later = self.arrival_s < cut_s, other.arrival_s >= cut_s
        seen, unseen = self.telemetry_s < cut_s, other.telemetry_s >= cut_s
        return ObservedTrace(
            arrival_s=np.concatenate([self.arrival_s[arrived], other.arrival_s[later]]),
            done_s=np.concatenate([np.minimum(self.done_s[arrived], cut_s), other.done_s[later]]),
            telemetry_s=np.concatenate([self.telemetry_s[seen], other.telemetry_s[unseen]]),
            pressures=np.hstack([self.pressures[:, seen], other.pressures[:, unseen]]),
            loss=np.hstack([self.loss[:, :cut_step], other.loss[:, cut_step:]]),
            tokens=np.hstack([self.tokens[:, :cut_step], other.tokens[:, cut_step:]]),
        )

    @functools.cached_property
    def _arrivals_sorted(self) -> np.ndarray:
        return np.sort(self.arrival_s)

    @functools.cached_property
    def _done_sorted(self) -> np.ndarray:
        return np.sort(self.done_s)

    @functools.cached_property
    def _counts_per_s(self) -> np.ndarray:
        seconds = int(self.telemetry_s[-1] + MAX_AGE_S) + 2  # no observation is later than that
        counts = np.bincount(self.arrival_s.astype(np.int64), minlength=seconds)
        counts.setflags(write=False)
        return counts

    @functools.cached_property
    def _tokens_from_start(self) -> np.ndarray:
        return np.hstack([np.zeros((self.islands, 1), dtype=np.int64), self.tokens])

    @functools.cached_property
    def _loss_sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Prefix sums of the loss and of step times loss, each of shape (islands, steps + 1).

        Losses count from the first one, against rounding. Sums run in order of steps, so that
        they owe nothing to what comes later, and are the same on every machine.
        """
        loss = self.loss - self.loss[:, :1]
        zero = np.zeros((self.islands, 1))
        step = np.arange(1, loss.shape[1] + 1)
        return (
            np.hstack([zero, np.cumsum(loss, axis=1)]),
            np.hstack([zero, np.cumsum(step * loss, axis=1)]),
        )

    def _loss_drop(self, last_step: int, step: int) -> np.ndarray:
        """Return each island's fall of loss over the gap: its least-squares slope times the gap.

        A batch's loss is noisy, and two single batches would mostly compare noise; the line through
        all n losses of the gap has a standard error of sqrt(12 / n) times a batch's deviation. A
        gap of one step shows no fall: 0.
        """
        count = step - last_step
        if count < 2:
            return np.zeros(self.islands)
        totals, moments = self._loss_sums
        total = totals[:, step] - totals[:, last_step]
        moment = moments[:, step] - moments[:, last_step]
        centre = (last_step + 1 + step) / 2
        slope = (moment - centre * total) / (count * (count**2 - 1) / 12)
        return -slope * count

    def _signals(self, now_s: float) -> Signals:
        row = int(np.searchsorted(self.telemetry_s, now_s, side="left")) - 1
        if row < 0 or now_s - self.telemetry_s[row] > MAX_AGE_S:
            found = "none" if row < 0 else f"the last one at {self.telemetry_s[row]:g} s"
            raise ValueError(
                f"telemetry: no row in the {MAX_AGE_S:g} s before {now_s:g} s ({found}); signals "
                f"{', '.join(SIGNALS)} are missing"
            )
        return Signals(*self.pressures[:, row].tolist())


def observe_block(
    requests: pd.DataFrame,
    telemetry: pd.DataFrame,
    learners: pd.DataFrame,
    *,
    network_reference_bytes_per_s: float,
    disk_reference_bytes_per_s: float,
    serving_reference: float,
    window_s: float = 1.0,
) -> ObservedTrace:
    """Return the observable trace of a block from its nosync capture and the learners' progress.

    Pressures are means over the last ``window_s`` seconds, divided by their reference and clipped
    to [0, 1]: the rate of ``network_bytes``; that of ``disk_written_bytes`` (checkpoint pressure);
    and requests running plus waiting, against ``serving_reference``, the number at which the
    sidecar counts as saturated.

    Raises ValueError, naming table and column, for a reference that is not positive, a missing or
    not finite value, telemetry that does not rise, a counter that falls, or islands whose steps
    are not 1, 2, 3, ... to a common end: a missing signal is never a zero.
    """
    for name, value in (
        ("network_reference_bytes_per_s", network_reference_bytes_per_s),
        ("disk_reference_bytes_per_s", disk_reference_bytes_per_s),
        ("serving_reference", serving_reference),
        ("window_s", window_s),
    ):
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be positive and finite, found {value}")
    t_s = _column("telemetry", telemetry, "t_s")
    if len(t_s) < 2 or np.any(np.diff(t_s) <= 0):
        raise ValueError("telemetry: column 't_s' must rise over at least two rows")
    load = _column("telemetry", telemetry, "running") + _column("telemetry", telemetry, "waiting")
    network, disk = (
        _rate(name, t_s, _column("telemetry", telemetry, name), window_s)
        for name in ("network_bytes", "disk_written_bytes")
    )
    relative = [
        network / network_reference_bytes_per_s,
        _window_mean(t_s, load, window_s) / serving_reference,
        disk / disk_reference_bytes_per_s,
    ]
    loss, tokens = _by_island(learners)
    return ObservedTrace(
        arrival_s=_column("requests", requests, "arrival_s"),
        done_s=_column("requests", requests, "done_s"),
        telemetry_s=t_s[1:],
        pressures=np.clip(np.stack(relative), 0.0, 1.0),
        loss=loss,
        tokens=tokens,
    )


def _column(table: str, rows: pd.DataFrame, name: str) -> np.ndarray:
    if name not in rows.columns:
        raise ValueError(f"{table}: column '{name}' is missing")
    values = rows[name].to_numpy(dtype=np.float64, na_value=np.nan)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise ValueError(
            f"{table}: column '{name}' has no finite value in {bad.size} rows, the first row "
            f"{bad[0]}; a missing signal is not a zero"
        )
    return values


def _rate(name: str, t_s: np.ndarray, counter: np.ndarray, window_s: float) -> np.ndarray:
    """Return the counter's mean rate over the window before each row but the first, per second."""
    if np.any(np.diff(counter) < 0):
        fall = t_s[1:][np.diff(counter) < 0][0]
        raise ValueError(f"telemetry: counter '{name}' falls at {fall:g} s")
    before = np.maximum(np.searchsorted(t_s, t_s[1:] - window_s, side="right") - 1, 0)
    return (counter[1:] - counter[before]) / (t_s[1:] - t_s[before])


def _window_mean(t_s: np.ndarray, values: np.ndarray, window_s: float) -> np.ndarray:
    """Return the mean over the rows in ``(t - window, t]``, for each row but the first."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    first = np.searchsorted(t_s, t_s[1:] - window_s, side="right")
    last = np.arange(2, len(t_s) + 1)
    return (sums[last] - sums[first]) / (last - first)


def _by_island(learners: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    island = _column("learners", learners, "island")
    step = _column("learners", learners, "step")
    order = np.lexsort((step, island))
    islands = len(np.unique(island))
    steps = len(island) // islands if islands else 0
    if steps == 0 or not np.array_equal(step[order], np.tile(np.arange(1, steps + 1), islands)):
        raise ValueError(
            "learners: column 'step' must run 1, 2, 3, ... to the same end for every island"
        )
    return tuple(
        _column("learners", learners, name)[order].astype(kind).reshape(islands, steps)
        for name, kind in (("loss", np.float64), ("tokens", np.int64))
    )
