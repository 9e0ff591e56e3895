"""Reading a trace: which format, checked rows, failures dropped, the stamps' grid undone."""

import codecs
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from safesync.workload.importers.arrivals_csv import ArrivalsCsv
from safesync.workload.importers.arrivals_parquet import ArrivalsParquet
from safesync.workload.importers.azure import Azure2023, Azure2024
from safesync.workload.importers.base import Batch, Format, TraceError
from safesync.workload.importers.burstgpt import BurstGpt
from safesync.workload.importers.mooncake import Mooncake
from safesync.workload.streams import stream

FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        ArrivalsParquet(),
        Mooncake(),
        Azure2023(),
        Azure2024(),
        BurstGpt(),
        ArrivalsCsv(),
    )
}

_HEAD_BYTES = 64 << 10
# first bytes of what holds a trace in a way that is not read
_FOREIGN = {
    b"\x1f\x8b": "it is compressed by gzip: unpack it",
    b"PK\x03\x04": "it is a zip archive or a workbook: unpack it, or save it as CSV",
    codecs.BOM_UTF16_LE: "it is UTF-16 text: save it as UTF-8",
    codecs.BOM_UTF16_BE: "it is UTF-16 text: save it as UTF-8",
}
_MOST_TOKENS = 2**31 - 1
# Mooncake's stamps keep their grid to within 3 ms in 3 s
_GRID_TOLERANCE = 0.01

# column, which rows of a batch are at fault, and the words for the row at an index
_Fault = tuple[str, np.ndarray, Callable[[int], str]]


@dataclass(frozen=True)
class Rows:
    """The requests of one batch that did not fail.

    ``arrival_s``: float64, shape (n,), seconds from the trace's first row, spread over the stamps'
    grid; within a batch and from one to the next they may run back by less than a grid cell.
    ``prompt_tokens``, ``output_tokens``: int64, shape (n,), from 0 and from 1; None where the file
    has none. ``read``, ``failed``: rows read, and those of them dropped for want of output tokens.
    ``first_s``, ``last_s``: stamps of the first and last row read, before spreading. ``share``: how
    much of the file has been read, 0 to 1.
    """

    arrival_s: np.ndarray
    prompt_tokens: np.ndarray | None
    output_tokens: np.ndarray | None
    read: int
    failed: int
    first_s: float
    last_s: float
    share: float


class TraceFile:
    """A trace on disk, in a known format."""

    def __init__(self, path: str | Path, name: str = "auto", spread_s: float | None = None) -> None:
        """Take ``path`` for a trace of format ``name``; auto: what its first bytes say.

        ``spread_s``: requests of one stamp are spread uniformly over so many seconds after it, by
        a random stream that belongs to the format; None: the format's resolution; 0: left as is.
        Raises TraceError when there is no such file, it is a folder, empty, compressed or UTF-16,
        or no format recognises it.
        """
        self.path = Path(path)
        head = self._head()
        self.format = self._recognised(head) if name == "auto" else FORMATS[name]
        self.spread_s = self.format.grid_s if spread_s is None else spread_s
        self.marked = head.startswith(codecs.BOM_UTF8)

    def rows(self) -> Iterator[Rows]:
        """Yield the trace's requests in file order; the same at every call.

        Raises TraceError, naming the place, for a stamp that is missing, not finite, negative,
        earlier than the one before it or off the grid, and for counts that are no whole number of
        tokens.
        """
        rng = stream("spread", self.format.name)
        origin, last, row = None, None, 0
        for batch in self.format.batches(self.path):
            self._check(batch, row, last)
            stamps = batch.stamp_s
            origin = stamps[0] if origin is None else origin
            arrival_s = stamps - origin
            if self.spread_s:
                arrival_s = arrival_s + self.spread_s * rng.random(len(stamps))
            yield _kept(batch, arrival_s, stamps[0] - origin, stamps[-1] - origin)
            last, row = stamps[-1], row + len(stamps)

    def length_counts(self, column: Literal["prompt", "output"]) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct lengths of prompts or outputs, int64 tokens, and how often each is.

        Raises TraceError as ``rows`` does, and when the trace has no lengths.
        """
        found: Counter[int] = Counter()
        for some in self.rows():
            lengths = some.prompt_tokens if column == "prompt" else some.output_tokens
            if lengths is None:
                _, *names = self.format.columns
                raise TraceError(f"{self.path}: no columns {' and '.join(names)} to draw from")
            values, counts = np.unique(lengths, return_counts=True)
            found.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        if not found:
            raise TraceError(f"{self.path}: no request with output tokens to draw from")
        pairs = np.array(sorted(found.items()), dtype=np.int64)
        return pairs[:, 0], pairs[:, 1]

    def notes(self) -> list[str]:
        """Return what was passed over in the file, a sentence each."""
        ignored = self.format.ignored(self.path)
        notes = ["a byte-order mark was skipped"] * self.marked
        return notes + [f"columns passed over: {', '.join(ignored)}"] * bool(ignored)

    def sha256(self) -> str:
        """Return the hash of the file's bytes."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _head(self) -> bytes:
        if self.path.is_dir():
            raise TraceError(f"{self.path}: it is a folder; expected the file of a trace")
        if not self.path.is_file():
            raise TraceError(f"{self.path}: no such file; expected a trace of requests")
        with self.path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if not head:
            raise TraceError(f"{self.path}: the file is empty; expected a trace of requests")
        for first, words in _FOREIGN.items():
            if head.startswith(first):
                raise TraceError(f"{self.path}: {words}")
        return head

    def _recognised(self, head: bytes) -> Format:
        for one in FORMATS.values():
            if one.recognises(head):
                return one
        known = "; ".join(f"{one.name}: {', '.join(one.columns)}" for one in FORMATS.values())
        raise TraceError(
            f"{self.path}: its first line, {_told(head.splitlines()[0])}, is that of no known "
            f"format; name the format, or give it the columns of one ({known})"
        )

    def _check(self, batch: Batch, row: int, last: float | None) -> None:
        """Raise for the first fault of ``batch``, whose first row is row ``row`` of the file."""
        faults = [*self._stamp_faults(batch.stamp_s, last), *self._count_faults(batch)]
        firsts = [
            (int(np.argmax(bad)), column, words) for column, bad, words in faults if bad.any()
        ]
        if firsts:
            at, column, words = min(firsts, key=lambda first: first[0])
            place = self.format.place(self.path, row + at)
            raise TraceError(f"{self.path}, {place}: column '{column}' is {words(at)}")

    def _stamp_faults(self, stamps: np.ndarray, last: float | None) -> Iterator[_Fault]:
        column = self.format.columns[0]
        yield column, ~np.isfinite(stamps), lambda at: f"{_shown(stamps[at])}, expected a time"
        if not self.format.calendar:
            yield column, stamps < 0, lambda at: f"{stamps[at]:g}, expected a time from 0 up"
        with np.errstate(invalid="ignore"):
            gaps = np.diff(stamps, prepend=stamps[0] if last is None else last)
        yield (
            column,
            gaps < 0,
            lambda at: f"{-gaps[at]:.6g} s before the row above it; sort the file by it",
        )
        if self.spread_s:
            yield (
                column,
                (gaps > 0) & (gaps < self.spread_s * (1 - _GRID_TOLERANCE)),
                lambda at: (
                    f"{gaps[at]:.6g} s after the row above it, but requests are to be "
                    f"spread over a grid of {self.spread_s:g} s; if the stamps are exact, set "
                    "spread_s: 0"
                ),
            )

    def _count_faults(self, batch: Batch) -> Iterator[_Fault]:
        counts = (batch.prompt_tokens, batch.output_tokens)
        for column, values in zip(self.format.columns[1:], counts, strict=True):
            if values is not None:
                whole = (values >= 0) & (values <= _MOST_TOKENS) & (values == np.floor(values))
                yield column, ~whole, partial(_count_words, values)


def _told(first: bytes) -> str:
    """Return a file's first line in words: its first 60 characters, and a foreign separator."""
    text = first.decode("utf-8-sig", errors="replace")
    shown = "".join(one if one.isprintable() else " " for one in text[:60])
    for separator, word in ((";", "';'"), ("\t", "a tab")):
        if separator in text and "," not in text:
            return f"'{shown}' (its separator is {word}, expected ',')"
    return f"'{shown}'" if text.strip() else "(blank)"


def _count_words(values: np.ndarray, at: int) -> str:
    return f"{_shown(values[at])}, expected a whole number of tokens from 0 to {_MOST_TOKENS}"


def _shown(value: float) -> str:
    return "empty or not a number" if np.isnan(value) else f"{value:g}"


def _kept(batch: Batch, arrival_s: np.ndarray, first_s: float, last_s: float) -> Rows:
    """Return the rows of ``batch`` less those without output tokens: requests that failed."""
    read = len(arrival_s)
    prompts, outputs = batch.prompt_tokens, batch.output_tokens
    if prompts is not None:
        answered = outputs > 0
        if not answered.all():
            arrival_s, prompts, outputs = arrival_s[answered], prompts[answered], outputs[answered]
        prompts, outputs = prompts.astype(np.int64), outputs.astype(np.int64)
    failed = read - len(arrival_s)
    return Rows(
        arrival_s, prompts, outputs, read, failed, float(first_s), float(last_s), batch.share
    )
