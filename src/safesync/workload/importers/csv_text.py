"""Traces in CSV: read by column name in blocks, and every fault told with its line."""

import codecs
import csv
from abc import abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from safesync.workload.importers.base import Batch, TextFormat, TraceError, spellings

_BLOCK_BYTES = 1 << 20
_HEAD_BYTES = 64 << 10


class CsvFormat(TextFormat):
    """Base of the CSV formats: UTF-8 text, a header, commas.

    A byte-order mark, CRLF, a missing last newline, blank lines, and case and spaces around the
    names of columns do no harm; further columns are passed over. What does not parse is refused,
    never guessed.
    """

    stamp_type: ClassVar[pa.DataType] = pa.float64()
    #: whether the file may come without both token columns
    tokens_optional: ClassVar[bool] = False

    @abstractmethod
    def stamp_fault(self, text: str) -> str | None:
        """Return why ``text`` is no stamp of this format, and what was expected; None if it is."""

    def seconds(self, stamps: pa.Array, first: pa.Scalar) -> np.ndarray:
        """Return ``stamps`` in seconds; ``first`` is the stamp of the file's first row."""
        return stamps.to_numpy(zero_copy_only=False)

    def recognises(self, head: bytes) -> bool:
        """Tell by the header."""
        names = header_of(head) or []
        return all(spellings(names, column) for column in self.columns)

    def batches(self, path: Path) -> Iterator[Batch]:
        """Yield the rows, some 1 MiB of text at a time."""
        stamp, *tokens = self.columns
        used = self._used(path)
        types = {used[name]: pa.float64() for name in used} | {used[stamp]: self.stamp_type}
        first = None
        try:
            with pa.OSFile(str(path)) as file:
                reader = arrow_csv.open_csv(
                    file,
                    read_options=arrow_csv.ReadOptions(block_size=_BLOCK_BYTES),
                    convert_options=arrow_csv.ConvertOptions(
                        column_types=types, include_columns=list(types)
                    ),
                )
                for batch in reader:
                    if batch.num_rows == 0:
                        continue
                    stamps = batch[used[stamp]]
                    first = stamps[0] if first is None else first
                    counts = [
                        batch[used[name]].to_numpy(zero_copy_only=False) if name in used else None
                        for name in tokens
                    ]
                    share = file.tell() / file.size()
                    yield Batch(self.seconds(stamps, first), *counts, share)
        except pa.ArrowInvalid as error:
            raise self.explained(path, str(error)) from None
        if first is None:
            raise self.explained(path, "no rows")

    def records(self, path: Path) -> Iterator[tuple[int, list[str]]]:
        """Yield (line, fields) of each row below the header; blank lines are none."""
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            reader = csv.reader(file)
            next(reader)
            for fields in reader:
                if fields:
                    yield reader.line_num, fields

    def checker(self, path: Path) -> Callable[[list[str]], str | None]:
        """Return what tells why the fields of one row cannot be parsed."""
        names, used = header(path), self._used(path)

        def fault(fields: list[str]) -> str | None:
            if fields == names:
                return "the header again; were two files joined? Import one, or remove this line"
            if len(fields) != len(names):
                return f"{len(fields)} fields, expected {len(names)} ({', '.join(names)})"
            for name, spelt in used.items():
                text = fields[names.index(spelt)].strip()
                wrong = self.stamp_fault(text) if name == self.columns[0] else number_fault(text)
                if text and wrong:
                    return f"column '{name}' is '{text}', {wrong}"
            return None

        return fault

    def ignored(self, path: Path) -> list[str]:
        """Return the names of the columns that are passed over."""
        used = self._used(path).values()
        return [name.strip() for name in header(path) if name not in used]

    def _used(self, path: Path) -> dict[str, str]:
        """Return how the header spells each column to read, in the order of ``columns``."""
        names = header(path)
        found = {name: spellings(names, name) for name in self.columns}
        for name, spelt in found.items():
            if len(spelt) > 1:
                raise TraceError(f"{path}, line 1: column '{name}' stands twice in the header")
        missing = [name for name, spelt in found.items() if not spelt]
        stamp, *tokens = self.columns
        if missing and not (self.tokens_optional and missing == tokens):
            alone = f" (or '{stamp}' alone)" if self.tokens_optional else ""
            raise TraceError(
                f"{path}, line 1: no column '{missing[0]}'; format '{self.name}' has "
                f"{', '.join(self.columns)}{alone}, found {', '.join(names)}"
            )
        return {name: spelt[0] for name, spelt in found.items() if spelt}


class SecondsCsv(CsvFormat):
    """Base of the CSV formats whose stamps are numbers of seconds."""

    def stamp_fault(self, text: str) -> str | None:
        """Return why ``text`` is no number."""
        return number_fault(text, "a number of seconds")


def header(path: Path) -> list[str]:
    """Return the column names of a CSV file; raises TraceError when its first line is no text."""
    with path.open("rb") as file:
        names = header_of(file.read(_HEAD_BYTES))
    if names is None:
        raise TraceError(f"{path}, line 1: not UTF-8 text; expected a CSV file with a header")
    return names


def header_of(head: bytes) -> list[str] | None:
    """Return the column names in the first line of ``head``; None when it is not UTF-8."""
    line = first_line(head)
    return None if line is None else next(csv.reader([line]), [])


def first_line(head: bytes) -> str | None:
    """Return the first line of ``head`` without a byte-order mark; None when it is not UTF-8."""
    line = b"".join(head.splitlines()[:1])
    try:
        # a line longer than the head may be cut inside a character
        return codecs.getincrementaldecoder("utf-8-sig")().decode(line)
    except UnicodeDecodeError:
        return None


def number_fault(text: str, expected: str = "a whole number of tokens") -> str | None:
    """Return what was expected when ``text`` is no number; None if it is one."""
    try:
        # Python's float takes 1_300 and the digits of every script
        float(text.replace("_", "?").encode("ascii"))
    except ValueError:
        return f"expected {expected}"
    return None
