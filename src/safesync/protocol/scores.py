"""One replay becomes one row of SCORES: latencies, violations, overlap, load and validity."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from safesync.protocol.gates import count
from safesync.protocol.percentiles import RELATIVE_ERROR, Percentiles
from safesync.protocol.validity import Limits, faults, lateness_s, window_ends_s
from safesync.tables import TableError
from safesync.tables.arrivals import arrivals_sha256
from safesync.tables.requests import STATUSES
from safesync.tables.scores import SCORES

METRICS = ("e2e", "ttft", "tpot")
IDENTITY = ("run", "tier", "regime", "kind", "seed", "role", "policy", "draw", "budget")
_QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
# the columns of REQUESTS that a tally reads
_TALLIED = [
    *("request_id", "arrival_s", "sent_s", "first_token_s", "last_token_s", "done_s"),
    *("output_tokens", "status"),
]
_PART_ROWS = 2**20


class ScoreError(ValueError):
    """The tables of a replay do not belong together; the message is one sentence."""


def score(
    requests: pd.DataFrame,
    merges: pd.DataFrame,
    schedule_draw: pd.DataFrame,
    arrivals: pd.DataFrame,
    nosync_requests: pd.DataFrame,
    *,
    slo_metric: str,
    threshold_s: float,
    merge_s: float,
    feasible: bool,
    identity: Mapping,
    manifest: Mapping,
    limits: Limits | None = None,
) -> dict:
    """Return one row of SCORES for one replay.

    ``requests``, ``merges``, ``arrivals``: the replay's tables. ``schedule_draw``: the rows of
    SCHEDULE of the one draw that was replayed. ``nosync_requests``: the REQUESTS of the block's
    nosync capture (for the capture itself: its own rows). ``merge_s``: planned length of a
    blocking merge window, seconds. ``feasible``: whether the schedule stays inside the corridor.
    ``identity``: the values of ``IDENTITY``, and of a control its ``control_of`` if it has one.
    ``manifest``: its ``fingerprint``; of a measurement
    also the style of its merges and what ``validity.faults`` reads. ``limits``: of a measurement;
    None for an engine that computes and so has no client to be late.

    Percentiles are nearest-rank over the raw rows. The plain columns run over all requests with
    a request that did not succeed at +infinity (Parquet holds it as such); the ``*_ok_s`` columns
    run over successes. A success of fewer than two tokens has no TPOT: it is in no TPOT
    percentile and cannot violate a TPOT objective. NaN stands where there is no value at all.

    Raises ScoreError when the rows of ``requests`` are not exactly those of ``arrivals`` or when
    a name is unknown: a lost row would shrink a denominator.
    """
    missing = [name for name in IDENTITY if name not in identity]
    if missing:
        raise ScoreError(f"the replay's identity lacks {missing}")
    _check_rows(requests, arrivals)
    tally = Tally(slo_metric, threshold_s)
    tally.add(requests)
    if len(schedule_draw) != identity["budget"]:
        raise ScoreError(
            f"budget {identity['budget']} differs from the "
            f"{count(len(schedule_draw), 'merge')} scheduled"
        )

    trace = arrivals_sha256(arrivals)
    wrong = []
    if limits is not None:
        wrong = faults(
            requests,
            merges,
            manifest,
            arrivals=arrivals,
            arrivals_sha256=trace,
            merge_s=merge_s,
            limits=limits,
        )
    starts_s = schedule_draw["start_s"].to_numpy(float)
    ends_s = window_ends_s(starts_s, merge_s, manifest)
    sent = requests["sent_s"].notna().to_numpy()
    prompts = arrivals.set_index("request_id")["prompt_tokens"]
    row = {name: identity[name] for name in IDENTITY} | tally.row()
    row |= {
        "control_of": identity.get("control_of"),
        "capture": identity["tier"],
        "excess_rate": row["violation_rate"]
        - _share(violates(nosync_requests, slo_metric, threshold_s)),
        "overlap": int(exposed(nosync_requests, starts_s, ends_s).sum()),
        "offered_prompt_tokens": int(prompts.loc[requests["request_id"][sent]].sum()),
        "arrivals_sha256": trace,
        "loop_lag_p99_s": _number(manifest.get("figures", {}).get("loop_lag_p99_s")),
        "merge_seconds": float((merges["end_s"] - merges["start_s"]).sum()),
        "planned_merge_seconds": float((ends_s - starts_s).sum()),
        "feasible": bool(feasible),
        "valid": not wrong,
        "invalid_reason": "; ".join(wrong) or None,
        "fingerprint": str(manifest["fingerprint"]),
    }
    return {name: row[name] for name in SCORES.schema.names}


class Tally:
    """What REQUESTS rows say of a replay by themselves, in columns of SCORES; they come in parts.

    ``slo_metric``, ``threshold_s``: the objective. Counts and rates are exact, and so are the
    percentiles of up to ``percentiles.EXACT_VALUES`` requests; those of more are off by at most
    ``percentiles.RELATIVE_ERROR`` of themselves. What is held does not grow with the rows.

    ScoreError: the objective's metric or a row's status is unknown, or a success has no end.
    """

    def __init__(self, slo_metric: str, threshold_s: float):
        if slo_metric not in METRICS:
            raise ScoreError(f"slo metric '{slo_metric}' is unknown; expected one of {METRICS}")
        self._objective = (slo_metric, threshold_s)
        self._statuses: Counter[str] = Counter()
        self._violations = self._sent = 0
        self._lateness_s = Percentiles()
        self._latencies_s = {metric: Percentiles() for metric in METRICS}

    def add(self, requests: pd.DataFrame) -> None:
        """Take in the rows of a part."""
        self._statuses.update(_counted(requests["status"]))
        self._sent += int(requests["sent_s"].notna().sum())
        self._lateness_s.add(lateness_s(requests))
        metric, threshold_s = self._objective
        for name in METRICS:
            values = metric_s(requests, name)
            undefined = np.isnan(values)
            if name == "e2e" and undefined.any():
                endless = requests["request_id"].to_numpy()[undefined][0]
                raise ScoreError(f"request {endless} succeeded but has no done_s; expected its end")
            if name == metric:
                self._violations += int((values > threshold_s).sum())
            self._latencies_s[name].add(values[~undefined])

    @property
    def percentile_error(self) -> float:
        """By what share of itself a percentile can be off."""
        columns = (self._lateness_s, *self._latencies_s.values())
        return 0.0 if all(column.exact for column in columns) else RELATIVE_ERROR

    def row(self) -> dict:
        """Return the columns of SCORES that the rows so far give."""
        requests = self._statuses.total()
        found = {
            "requests": requests,
            "ok": self._statuses["ok"],
            "failed": self._statuses["error"] + self._statuses["timeout"],
            "censored": self._statuses["censored"],
            "violations": self._violations,
            "violation_rate": self._violations / requests if requests else np.nan,
            "sent": self._sent,
            "lateness_p99_s": self._lateness_s.at(0.99),
        }
        for metric, latencies_s in self._latencies_s.items():
            for name, quantile in _QUANTILES.items():
                found[f"{metric}_{name}_s"] = latencies_s.at(quantile)
                found[f"{metric}_{name}_ok_s"] = latencies_s.at(quantile, finite=True)
        return found


def score_table(path: str | Path, *, slo_metric: str, threshold_s: float) -> dict:
    """Return what a REQUESTS table says by itself, as ``Tally.row``, with ``percentile_error``.

    It may be of any length: a row group of the file is held, compressed, and a part of it. What
    needs the block's other tables (excess, overlap, validity) is left to ``score``.

    Raises TableError when the file is no REQUESTS table, and ScoreError as ``Tally`` does.
    """
    tally = Tally(slo_metric, threshold_s)
    try:
        held = pq.read_schema(path).names
        missing = [name for name in _TALLIED if name not in held]
        if missing:
            raise TableError(f"{path}: no column {missing}; expected a table 'requests'")
        with pq.ParquetFile(path, read_dictionary=["status"]) as file:
            # one by one: a reader keeps what it has read of every row group that it was given
            for group in range(file.num_row_groups):
                for part in file.iter_batches(_PART_ROWS, [group], columns=_TALLIED):
                    tally.add(part.to_pandas())
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(f"{path}: not a readable Parquet file ({error})") from error
    return tally.row() | {"percentile_error": tally.percentile_error}


def metric_s(requests: pd.DataFrame, metric: str) -> np.ndarray:
    """Return the latency of every request, seconds, shape (n,), in the rows' order.

    ``e2e`` = done - arrival, ``ttft`` = first token - arrival, both from the *scheduled* arrival;
    ``tpot`` = (last token - first token) / (output tokens - 1). A request that did not succeed is
    +infinity; a success without the quantity (one token: no TPOT) is NaN.
    """
    if metric == "e2e":
        values = (requests["done_s"] - requests["arrival_s"]).to_numpy(float)
    elif metric == "ttft":
        values = (requests["first_token_s"] - requests["arrival_s"]).to_numpy(float)
    else:
        gaps = requests["output_tokens"].to_numpy(float) - 1
        span = (requests["last_token_s"] - requests["first_token_s"]).to_numpy(float)
        values = np.divide(span, gaps, out=np.full(len(requests), np.nan), where=gaps >= 1)
    return np.where(requests["status"] == "ok", values, np.inf)


def violates(requests: pd.DataFrame, metric: str, threshold_s: float) -> np.ndarray:
    """Return which requests broke the objective, bool, shape (n,): too slow, or not succeeded."""
    return metric_s(requests, metric) > threshold_s


def exposed(nosync_requests: pd.DataFrame, start_s, end_s) -> np.ndarray:
    """Return which requests a window [start, end) meets in the nosync capture, bool, shape (n,).

    For several windows, ``start_s`` and ``end_s`` of shape (k,), the shape is (k, n). A request is
    met when it is in flight at the start or arrives inside the window. Its interval in *nosync*
    decides: its slowness under merges must not decide whether it counts as exposed.
    """
    start, end = (np.asarray(edge, dtype=float)[..., None] for edge in (start_s, end_s))
    arrival, done = (nosync_requests[name].to_numpy() for name in ("arrival_s", "done_s"))
    in_flight = (arrival <= start) & (start < done)
    return in_flight | ((arrival >= start) & (arrival < end))


def _counted(statuses: pd.Series) -> dict[str, int]:
    """Return how many rows have each status; ScoreError when one is unknown."""
    counts = statuses.value_counts(dropna=False)
    counts = {status: int(rows) for status, rows in counts.items() if rows}
    unknown = sorted(str(status) for status in counts if status not in STATUSES)
    if unknown:
        raise ScoreError(f"unknown request status {unknown}; expected one of {list(STATUSES)}")
    return counts


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def _share(flags: np.ndarray) -> float:
    return float(flags.mean()) if flags.size else np.nan


def _check_rows(requests: pd.DataFrame, arrivals: pd.DataFrame) -> None:
    if len(requests) != len(arrivals) or set(requests["request_id"]) != set(arrivals["request_id"]):
        raise ScoreError(
            f"{len(requests)} rows of requests do not match {len(arrivals)} arrivals by "
            "request_id; a measurement keeps one row per arrival"
        )
    due = arrivals.set_index("request_id")["arrival_s"].loc[requests["request_id"]].to_numpy()
    if not np.allclose(due, requests["arrival_s"].to_numpy(), rtol=0, atol=1e-6):
        raise ScoreError("requests carry other arrival times than the block's arrivals")
