"""Mooncake traces, FAST25 release (github.com/kvcache-ai/Mooncake, Apache-2.0)."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from pyarrow import json as arrow_json

from safesync.workload.importers.base import Batch, TextFormat
from safesync.workload.importers.csv_text import first_line

_BLOCK_BYTES = 1 << 20
_EXPECTED = '{"timestamp": ms, "input_length": tokens, "output_length": tokens, ...}'


class Mooncake(TextFormat):
    """JSON lines; stamps in milliseconds, but on a grid of 3.000 s (give or take 3 ms).

    Every grid point holds a batch of requests that came somewhere in those 3 s: replayed as they
    stand they are bursts that never were. ``hash_ids``, the prefix blocks, are passed over.
    """

    name: ClassVar[str] = "mooncake"
    columns: ClassVar[tuple[str, str, str]] = ("timestamp", "input_length", "output_length")
    grid_s: ClassVar[float] = 3.0
    unit: ClassVar[str] = "milliseconds"

    def recognises(self, head: bytes) -> bool:
        """Tell by the keys of the first line."""
        first = first_line(head) or ""
        return first.startswith("{") and all(f'"{name}"' in first for name in self.columns)

    def batches(self, path: Path) -> Iterator[Batch]:
        """Yield the rows, some 1 MiB of text at a time."""
        try:
            with pa.OSFile(str(path)) as file:
                reader = arrow_json.open_json(
                    file,
                    read_options=arrow_json.ReadOptions(block_size=_BLOCK_BYTES),
                    parse_options=arrow_json.ParseOptions(
                        explicit_schema=pa.schema([(name, pa.float64()) for name in self.columns]),
                        unexpected_field_behavior="ignore",
                    ),
                )
                for batch in reader:
                    stamp_ms, *tokens = (
                        batch[name].to_numpy(zero_copy_only=False) for name in self.columns
                    )
                    yield Batch(stamp_ms / 1e3, *tokens, file.tell() / file.size())
        except pa.ArrowInvalid as error:
            raise self.explained(path, str(error)) from None

    def records(self, path: Path) -> Iterator[tuple[int, str]]:
        """Yield (line, text) of each line that is not blank."""
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            for line, text in enumerate(file, start=1):
                if text.strip():
                    yield line, text

    def checker(self, path: Path) -> Callable[[str], str | None]:
        """Return what tells why one line cannot be parsed."""

        def fault(text: str) -> str | None:
            try:
                row = json.loads(text)
            except json.JSONDecodeError:
                return f"not JSON; expected {_EXPECTED}"
            for name in self.columns:
                value = row.get(name) if isinstance(row, dict) else None
                if type(value) not in (int, float):
                    return f"'{name}' is {json.dumps(value)}, expected {_EXPECTED}"
            return None

        return fault

    def ignored(self, path: Path) -> list[str]:
        """Return the keys of the first line that are passed over."""
        _, text = next(self.records(path))
        return [name for name in json.loads(text) if name not in self.columns]
