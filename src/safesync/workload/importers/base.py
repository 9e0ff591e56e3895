"""What every trace format shares: its contract, and the error that names file and line."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np


class TraceError(ValueError):
    """A trace cannot be used; the message is one sentence with the file and the place in it."""


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of a file, as they stand there.

    ``stamp_s``: float64, shape (n,), seconds on the file's own clock; NaN where there is none.
    ``prompt_tokens``, ``output_tokens``: float64, shape (n,), NaN where there is none; None where
    the file has no such columns. ``share``: how much of the file has been read, 0 to 1.
    """

    stamp_s: np.ndarray
    prompt_tokens: np.ndarray | None
    output_tokens: np.ndarray | None
    share: float


class Format(ABC):
    """One way in which traces are published."""

    name: ClassVar[str]
    #: names of the columns that hold the stamp, the prompt's tokens and the answer's tokens
    columns: ClassVar[tuple[str, str, str]]
    #: the stamps' resolution [s]: requests of one stamp came anywhere in the grid cell after it
    grid_s: ClassVar[float] = 0.0
    #: what the file's stamps are read as, in the reader's words
    unit: ClassVar[str] = "seconds"
    #: stamps are calendar times; batches hold seconds from the first row, which may be negative
    calendar: ClassVar[bool] = False

    @abstractmethod
    def recognises(self, head: bytes) -> bool:
        """Tell from a file's first bytes whether it is of this format."""

    @abstractmethod
    def batches(self, path: Path) -> Iterator[Batch]:
        """Yield the rows of ``path``, at least one; memory does not grow with the file.

        Raises TraceError when the file cannot be read as this format.
        """

    @abstractmethod
    def place(self, path: Path, row: int) -> str:
        """Return where row ``row`` (from 0) stands, in the reader's words: "line 12"."""

    def ignored(self, path: Path) -> list[str]:
        """Return the names of the columns that are passed over."""
        return []


class TextFormat(Format):
    """A format of one row per line of text."""

    @abstractmethod
    def records(self, path: Path) -> Iterator[tuple[int, Any]]:
        """Yield (line, content) of each row, slowly: this finds the words for a fault."""

    def place(self, path: Path, row: int) -> str:
        """Return the line of row ``row``, found by reading the file again."""
        for index, (line, _) in enumerate(self.records(path)):
            if index == row:
                return f"line {line}"
        raise IndexError(f"{path}: no row {row}")

    @abstractmethod
    def checker(self, path: Path) -> Callable[[Any], str | None]:
        """Return what tells, of the content of one row, why it cannot be parsed; None if it can."""

    def explained(self, path: Path, said: str) -> TraceError:
        """Return the first row of ``path`` that cannot be parsed, as a sentence.

        ``said``: the parser's own word, for the case that no row is to blame.
        """
        fault_of, line = self.checker(path), None
        for line, content in self.records(path):
            fault = fault_of(content)
            if fault:
                return TraceError(f"{path}, line {line}: {fault}")
        if line is None:
            return TraceError(f"{path}: no rows; expected one per request")
        return TraceError(f"{path}: not readable as format '{self.name}': {said}")


def spellings(names: Sequence[str], column: str) -> list[str]:
    """Return those of a file's column ``names`` that mean ``column``.

    Where none is ``column`` itself, case and spaces around a name do not count.
    """
    exact = [name for name in names if name == column]
    return exact or [name for name in names if name.strip().lower() == column.lower()]
