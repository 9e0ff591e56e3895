"""From a real trace and a seed to one block's arrivals: window, slice, scaling, clipping."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from safesync.workload.importers.base import TraceError
from safesync.workload.importers.reading import Rows, TraceFile
from safesync.workload.streams import stream
from safesync.workload.tokens import Lengths, clip
from safesync.workload.trace import Trace

# a year of slices of half a minute; every slice costs memory
_MOST_SLICES = 1_000_000
# requests per slice on average, below which empty slices put the stamps' unit in doubt
_FEW_REQUESTS = 10


@dataclass(frozen=True)
class Cut:
    """What one block takes from a trace.

    ``arrival_s``: float64, sorted, in [0, horizon). ``lengths``: None when they are to be drawn
    from the config. ``facts``: JSON-serialisable; all that was done to the trace.
    """

    arrival_s: np.ndarray
    lengths: Lengths | None
    facts: dict[str, Any]


@dataclass(frozen=True)
class Window:
    """The part of a trace that the config chose, [start, end) in seconds from its first row.

    A window that runs to the last row counts that row too.
    """

    start_s: float
    end_s: float
    requests: int

    @property
    def length_s(self) -> float:
        """Length, s."""
        return self.end_s - self.start_s

    @property
    def rate_rps(self) -> float:
        """Mean arrival rate, requests/s."""
        return self.requests / self.length_s


def cut(
    trace: Trace,
    horizon_s: float,
    regime: str,
    seed: int,
    seeds: Sequence[int],
    context_tokens: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Cut:
    """Return what block (``regime``, ``seed``) takes of ``trace`` for ``horizon_s`` seconds.

    ``seeds``: all seeds of the run in the config's order. ``context_tokens``: the sidecar's
    context; None: lengths are cut by the config's maxima alone. ``progress`` is called with the
    share of the work that is done, 0 to 1. The file is read up to three times, a block of it in
    memory at a time: for the window's rate, for which slices hold requests, and for the slice.

    Raises TraceError, in one sentence, for a fault of the file and for a window, horizon, rate or
    number of seeds that the trace cannot serve.
    """
    file = TraceFile(trace.path, trace.format, trace.spread_s)
    passes = _passes(file, 3 if trace.slices == "disjoint" else 2, progress)
    window, counts = _scan(trace, next(passes), file.spread_s)
    keep, factor = _scale(trace, window)
    taken_s = horizon_s / factor
    _check_room(trace, window, horizon_s, factor, len(seeds), file.format.unit)
    if trace.slices == "disjoint":
        start_s, dealt = _deal(trace, window, taken_s, next(passes), regime, seed, seeds)
    else:
        slack_s = window.length_s - taken_s
        start_s, dealt = window.start_s + stream("slice", regime, seed).random() * slack_s, {}
    found = _between(next(passes), start_s, start_s + taken_s)
    kept = found
    if trace.scaling == "thin":
        kept = found.where(stream("thin", regime, seed).random(found.arrival_s.size) < keep)
    if kept.arrival_s.size == 0:
        raise TraceError(
            f"{trace.path}: regime '{regime}', seed {seed}: none of {found.arrival_s.size} "
            f"requests in [{start_s:g}, {start_s + taken_s:g}) s is left; choose another seed, a "
            "longer horizon_s or another window"
        )
    if progress:
        progress(1.0)
    lengths = _lengths(trace, file, kept, context_tokens)
    notes = file.notes()
    if lengths is None and trace.lengths == "auto":
        _, *names = file.format.columns
        notes.append(f"no columns {' and '.join(names)}: lengths are the config's")
    facts = {
        "path": trace.path,
        "format": file.format.name,
        "sha256": file.sha256(),
        "notes": notes + _doubts(window, dealt, file.format.unit),
        "spread_s": file.spread_s,
        **counts,
        "window_start_s": window.start_s,
        "window_s": window.length_s,
        "window_requests": window.requests,
        "window_rps": window.rate_rps,
        "slices": trace.slices,
        **dealt,
        "slice_start_s": start_s,
        "slice_s": taken_s,
        "slice_requests": int(found.arrival_s.size),
        "target_rps": trace.target_rps,
        "keep_probability": keep,
        "time_factor": factor,
        "lengths": "config" if lengths is None else "trace",
        "context_tokens": context_tokens,
    }
    arrival_s = (kept.arrival_s - start_s) * factor
    # rounding may lift a time onto the horizon
    return Cut(np.minimum(arrival_s, np.nextafter(horizon_s, 0.0)), lengths, facts)


@dataclass(frozen=True)
class _Requests:
    """Requests in the order of their arrival; lengths are None where the trace has none."""

    arrival_s: np.ndarray
    prompt_tokens: np.ndarray | None
    output_tokens: np.ndarray | None

    def where(self, chosen: np.ndarray) -> "_Requests":
        """Return the requests at ``chosen``, a mask or an order."""
        columns = (self.arrival_s, self.prompt_tokens, self.output_tokens)
        return _Requests(*(None if column is None else column[chosen] for column in columns))


def _passes(
    file: TraceFile, count: int, progress: Callable[[float], None] | None
) -> Iterator[Iterator[Rows]]:
    """Yield the file's rows ``count`` times, reporting how much of all that has been read."""

    def rows(done: int) -> Iterator[Rows]:
        for some in file.rows():
            yield some
            if progress:
                progress((done + some.share) / count)

    for done in range(count):
        yield rows(done)


def _scan(trace: Trace, rows: Iterator[Rows], spread_s: float) -> tuple[Window, dict[str, Any]]:
    """Return the window with its requests, and what the whole file holds."""
    start_s = trace.window_start_s
    read = failed = requests = 0
    span_s = 0.0
    for some in rows:
        read, failed, span_s = read + some.read, failed + some.failed, some.last_s + spread_s
        inside = some.arrival_s >= start_s
        if trace.window_s is not None:
            inside &= some.arrival_s < start_s + trace.window_s
        requests += int(np.count_nonzero(inside))
    end_s = span_s if trace.window_s is None else start_s + trace.window_s
    if end_s > span_s or start_s >= span_s:
        rows_span = "only row spans" if read == 1 else f"{read} rows span"
        raise TraceError(
            f"{trace.path}: the window starts at {start_s:g} s and ends at {end_s:g} s, but the "
            f"trace's {rows_span} {span_s:g} s; set window_start_s and window_s within them"
        )
    window = Window(start_s, end_s, requests)
    if requests == 0:
        raise TraceError(
            f"{trace.path}: no request in the window [{start_s:g}, {end_s:g}) s ({failed} of the "
            f"file's {read} rows have no output tokens: requests that failed)"
        )
    return window, {"rows": read, "failed_rows_dropped": failed, "span_s": span_s}


def _scale(trace: Trace, window: Window) -> tuple[float, float]:
    """Return the probability of keeping a request, and the factor that time is multiplied by."""
    if trace.scaling == "none":
        return 1.0, 1.0
    ratio = trace.target_rps / window.rate_rps
    if trace.scaling == "stretch":
        return 1.0, 1 / ratio
    if ratio > 1:
        raise TraceError(
            f"{trace.path}: scaling: thin cannot raise the rate: target_rps {trace.target_rps:g} "
            f"is above the window's {window.requests} requests / {window.length_s:g} s = "
            f"{window.rate_rps:.4g} requests/s; lower target_rps, or set scaling: stretch"
        )
    return ratio, 1.0


def _check_room(
    trace: Trace, window: Window, horizon_s: float, factor: float, seeds: int, unit: str
) -> None:
    """Raise when the window is shorter than the slices that are needed, or absurdly longer."""
    taken_s = horizon_s / factor
    needed = 1 if trace.slices == "overlapping" else seeds
    stretched = f" (horizon_s {horizon_s:g} / time_factor {factor:.4g})" * (factor != 1)
    if window.length_s > _MOST_SLICES * taken_s:
        raise TraceError(
            f"{trace.path}: the window [{window.start_s:g}, {window.end_s:g}) s holds more than "
            f"{_MOST_SLICES} slices of {taken_s:g} s{stretched}; stamps are read as {unit}: if "
            "they are, narrow the window or lengthen horizon_s"
            + ", or raise target_rps"
            * (factor != 1)
        )
    if _slices(window, taken_s) < needed:
        raise TraceError(
            f"{trace.path}: too short: {needed} x {taken_s:g} s{stretched} = "
            f"{needed * taken_s:g} s of trace, one slice per seed, exceed the window "
            f"[{window.start_s:g}, {window.end_s:g}) s of {window.length_s:g} s; shorten "
            "horizon_s, widen the window"
            + ", drop seeds, or set slices: overlapping"
            * (needed > 1)
        )


def _slices(window: Window, taken_s: float) -> int:
    """Return how many slices the window holds."""
    # a window of exactly so many slices must not lose one to rounding
    return int(window.length_s / taken_s * (1 + 1e-12))


def _deal(
    trace: Trace,
    window: Window,
    taken_s: float,
    rows: Iterator[Rows],
    regime: str,
    seed: int,
    seeds: Sequence[int],
) -> tuple[float, dict[str, Any]]:
    """Return where the seed's own slice starts, s from the trace's first row, and the facts."""
    requests = np.zeros(_slices(window, taken_s), dtype=np.int64)
    for some in rows:
        places = np.floor((some.arrival_s - window.start_s) / taken_s)
        inside = places[(places >= 0) & (places < requests.size)].astype(np.int64)
        requests += np.bincount(inside, minlength=requests.size)
    open_slices = requests > 0
    empty = int(requests.size - open_slices.sum())
    if open_slices.sum() < len(seeds):
        raise TraceError(
            f"{trace.path}: {len(seeds)} seeds need a slice of {taken_s:g} s each, but {empty} of "
            f"the window's {requests.size} slices hold no request; lengthen horizon_s, widen the "
            "window or drop seeds"
        )
    index = slice_of(regime, seed, seeds, open_slices)
    return window.start_s + index * taken_s, {
        "slice_index": index,
        "slices_in_window": int(requests.size),
        "slices_without_requests": empty,
    }


def _doubts(window: Window, dealt: Mapping[str, Any], unit: str) -> list[str]:
    """Return a sentence where slices are so empty that stamps may be of another unit."""
    slices, empty = dealt.get("slices_in_window", 0), dealt.get("slices_without_requests", 0)
    # where requests come in batches most slices may be empty, but the others hold many
    if 2 * empty > slices and window.requests < _FEW_REQUESTS * slices:
        return [f"{empty} of {slices} slices hold no request; stamps are read as {unit}"]
    return []


def free_slices(facts: Mapping[str, Any], seeds: int) -> int:
    """Return how many further seeds could take a slice of their own.

    ``facts``: of the ``Cut`` of any of the run's ``seeds``. 0 where slices overlap: they would
    be no independent evidence.
    """
    if facts["slices"] == "overlapping":
        return 0
    return facts["slices_in_window"] - facts["slices_without_requests"] - seeds


def slice_of(regime: str, seed: int, seeds: Sequence[int], open_slices: np.ndarray) -> int:
    """Return which of the disjoint slices (from 0) ``seed`` takes.

    ``open_slices``: bool, shape (slices,), which of them may be taken. Every seed has an order of
    preference of its own; in the order of ``seeds`` each takes the first that is free, so that a
    seed added at the end of the list moves no other. Raises ValueError when ``seed`` is not in
    ``seeds`` or there are fewer open slices than seeds.
    """
    free = np.array(open_slices)
    if seed not in seeds or free.sum() < len(seeds):
        raise ValueError(
            f"slice_of: seed {seed} of {list(seeds)} among {int(free.sum())} open slices"
        )
    for one in seeds:
        order = stream("slice", regime, one).permutation(free.size)
        index = int(order[np.argmax(free[order])])
        free[index] = False
        if one == seed:
            break
    return index


def _between(rows: Iterator[Rows], start_s: float, end_s: float) -> _Requests:
    """Return the requests in [``start_s``, ``end_s``), sorted by arrival."""
    found = []
    for some in rows:
        # spreading only moves a request to later than its stamp
        if some.first_s >= end_s:
            break
        requests = _Requests(some.arrival_s, some.prompt_tokens, some.output_tokens)
        found.append(requests.where((some.arrival_s >= start_s) & (some.arrival_s < end_s)))
    columns = zip(
        *((one.arrival_s, one.prompt_tokens, one.output_tokens) for one in found), strict=True
    )
    whole = _Requests(*(None if parts[0] is None else np.concatenate(parts) for parts in columns))
    return whole.where(np.argsort(whole.arrival_s, kind="stable"))


def _lengths(
    trace: Trace, file: TraceFile, requests: _Requests, context_tokens: int | None
) -> Lengths | None:
    """Return the trace's own lengths, clipped; None when the config's are to be drawn."""
    if trace.lengths == "config":
        return None
    if requests.prompt_tokens is None:
        if trace.lengths == "trace":
            _, *names = file.format.columns
            raise TraceError(
                f"{trace.path}: no columns {' and '.join(names)}, which lengths: trace needs; add "
                "them, or set lengths: config"
            )
        return None
    return clip(
        requests.prompt_tokens,
        requests.output_tokens,
        context_tokens,
        trace.max_prompt_tokens,
        trace.max_output_tokens,
    )
