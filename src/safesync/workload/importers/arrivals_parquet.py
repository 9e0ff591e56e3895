"""A Parquet file of your own, with the columns of the plain CSV; safesync's arrivals are such."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from safesync.workload.importers.base import Batch, Format, TraceError, spellings

_BATCH_ROWS = 1 << 17


class ArrivalsParquet(Format):
    """Arrival times in seconds, on any clock whose stamps are not negative; read by row groups."""

    name: ClassVar[str] = "arrivals_parquet"
    columns: ClassVar[tuple[str, str, str]] = ("arrival_s", "prompt_tokens", "output_tokens")

    def recognises(self, head: bytes) -> bool:
        """Tell by Parquet's first four bytes."""
        return head.startswith(b"PAR1")

    def batches(self, path: Path) -> Iterator[Batch]:
        """Yield the rows, at most 131,072 at a time."""
        try:
            with pq.ParquetFile(path) as file:
                used = self._used(path, file.schema_arrow)
                total, done = file.metadata.num_rows, 0
                if total == 0:
                    raise TraceError(f"{path}: no rows; expected one per request")
                for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=list(used.values())):
                    done += batch.num_rows
                    values = [
                        batch[used[name]]
                        .cast(pa.float64(), safe=False)
                        .to_numpy(zero_copy_only=False)
                        if name in used
                        else None
                        for name in self.columns
                    ]
                    yield Batch(*values, done / total)
        except (pa.ArrowInvalid, OSError) as error:
            raise TraceError(f"{path}: not a readable Parquet file ({error})") from None

    def place(self, path: Path, row: int) -> str:
        """Return the row's number, from 1."""
        return f"row {row + 1}"

    def ignored(self, path: Path) -> list[str]:
        """Return the names of the columns that are passed over."""
        schema = pq.read_schema(path)
        used = self._used(path, schema).values()
        return [name for name in schema.names if name not in used]

    def _used(self, path: Path, schema: pa.Schema) -> dict[str, str]:
        """Return how ``schema`` spells each column to read, in the order of ``columns``."""
        stamp, *tokens = self.columns
        found = {name: spellings(schema.names, name) for name in self.columns}
        missing = [name for name, spelt in found.items() if not spelt]
        if missing not in ([], tokens):
            raise TraceError(
                f"{path}: no column '{missing[0]}'; format '{self.name}' has "
                f"{', '.join(self.columns)} (or '{stamp}' alone), found {', '.join(schema.names)}"
            )
        used = {}
        for name, spelt in found.items():
            if len(spelt) > 1:
                raise TraceError(f"{path}: column '{name}' stands twice")
            if not spelt:
                continue
            kind = schema.field(spelt[0]).type
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                unit = "seconds" if name == stamp else "tokens"
                raise TraceError(
                    f"{path}: column '{name}' has type {kind}, expected a number of {unit}"
                )
            used[name] = spelt[0]
        return used
