"""Azure LLM inference traces 2023 and 2024 (github.com/Azure/AzurePublicDataset, CC-BY-4.0)."""

import re
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pyarrow import compute

from safesync.workload.importers.csv_text import CsvFormat

_STAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,9})?(?P<zone>Z|[+-]\d\d:?\d\d)?")
_MANGLED = re.compile(r"\d{1,2}:\d\d(\.\d+)?")


class _Azure(CsvFormat):
    """What both years share: calendar stamps with up to 7 decimals, read to the nanosecond."""

    columns: ClassVar[tuple[str, str, str]] = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
    unit: ClassVar[str] = "calendar times"
    calendar: ClassVar[bool] = True
    example: ClassVar[str]
    zoned: ClassVar[bool]
    other: ClassVar[str]

    def recognises(self, head: bytes) -> bool:
        """Tell by the header, and by whether the first stamp carries a zone."""
        if not super().recognises(head):
            return False
        row = b"".join(head.splitlines()[1:2]).decode(errors="replace")
        found = _STAMP.search(row)
        return (found is not None and found["zone"] is not None) == self.zoned

    def seconds(self, stamps: pa.Array, first: pa.Scalar) -> np.ndarray:
        """Return seconds from the first row; the difference is taken in whole nanoseconds."""
        offset_ns = compute.subtract(stamps.cast(pa.int64()), first.cast(pa.int64()))
        return offset_ns.to_numpy(zero_copy_only=False) / 1e9

    def stamp_fault(self, text: str) -> str | None:
        """Return why ``text`` is no stamp of this year's trace."""
        expected = f"expected a stamp like {self.example}"
        if _MANGLED.fullmatch(text):
            return (
                f"{expected}: a spreadsheet has cut it to minutes and seconds, date and hour are "
                "lost; take the file as published"
            )
        found = _STAMP.fullmatch(text)
        if not found:
            return expected
        if (found["zone"] is not None) != self.zoned:
            return f"{expected}; this file is of format '{self.other}'"
        return None


class Azure2023(_Azure):
    """Stamps without a zone, CRLF lines, no last newline."""

    name: ClassVar[str] = "azure_2023"
    stamp_type: ClassVar[pa.DataType] = pa.timestamp("ns")
    example: ClassVar[str] = "2023-11-16 18:17:03.9799600"
    zoned: ClassVar[bool] = False
    other: ClassVar[str] = "azure_2024"


class Azure2024(_Azure):
    """Stamps with a zone, +00:00 as published; whole seconds come without decimals."""

    name: ClassVar[str] = "azure_2024"
    stamp_type: ClassVar[pa.DataType] = pa.timestamp("ns", tz="UTC")
    example: ClassVar[str] = "2024-05-10 00:00:00.009930+00:00"
    zoned: ClassVar[bool] = True
    other: ClassVar[str] = "azure_2023"
