"""Reading and writing one table: schema check, file metadata, atomic rename."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from safesync.tables.atomic import replacing

_METADATA_KEY = b"safesync"


class TableError(ValueError):
    """A table on disk is not what its schema promises; the message is one sentence."""


@dataclass(frozen=True)
class Table:
    """A named Parquet schema. ``version`` rises when the meaning of a column changes."""

    name: str
    schema: pa.Schema
    version: int = 1

    def write(self, path: str | Path, rows: pd.DataFrame, metadata: Mapping | None = None) -> None:
        """Write ``rows`` to ``path`` (zstd), through a temporary name and a rename.

        ``metadata`` is any JSON-serialisable mapping of run facts. Raises TableError when a
        column is missing, unknown or of a type that the schema cannot hold without loss.
        """
        path = Path(path)
        self._check_columns(path, rows.columns)
        try:
            table = pa.Table.from_pandas(rows, schema=self.schema, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise TableError(f"{path}: rows do not fit table '{self.name}': {error}") from error
        facts = {"table": self.name, "version": self.version, "metadata": dict(metadata or {})}
        # pandas' own schema blob holds library versions: without it equal rows give equal bytes
        table = table.replace_schema_metadata({_METADATA_KEY: json.dumps(facts, sort_keys=True)})
        with replacing(path) as temporary:
            pq.write_table(table, temporary, compression="zstd")

    def read(self, path: str | Path) -> pd.DataFrame:
        """Return the rows of ``path``; raises TableError, with the field, if they don't fit."""
        return self._read(path).to_pandas()

    def read_with_metadata(self, path: str | Path) -> tuple[pd.DataFrame, dict]:
        """Return the rows and the run facts that were written with them."""
        table = self._read(path)
        facts = json.loads(table.schema.metadata[_METADATA_KEY])
        return table.to_pandas(), facts["metadata"]

    def empty(self) -> pd.DataFrame:
        """Return no rows, with every column in its type."""
        return self.schema.empty_table().to_pandas()

    def _read(self, path: str | Path) -> pa.Table:
        path = Path(path)
        if not path.is_file():
            raise TableError(f"{path}: no such file; expected a table '{self.name}'")
        try:
            with pq.ParquetFile(path) as file:
                table = file.read()
        except (pa.ArrowInvalid, OSError) as error:
            raise TableError(
                f"{path}: not a readable Parquet file ({error}); remove it and run again"
            ) from error
        raw = (table.schema.metadata or {}).get(_METADATA_KEY)
        if raw is None:
            raise TableError(f"{path}: no safesync metadata; expected a table '{self.name}'")
        facts = json.loads(raw)
        if facts["table"] != self.name:
            raise TableError(f"{path}: holds table '{facts['table']}', expected '{self.name}'")
        if facts["version"] != self.version:
            raise TableError(
                f"{path}: table '{self.name}' has schema version {facts['version']}, expected "
                f"{self.version}; remove the file and run again"
            )
        self._check_columns(path, table.schema.names)
        for field in self.schema:
            found = table.schema.field(field.name).type
            if found != field.type:
                raise TableError(
                    f"{path}: column '{field.name}' has type {found}, expected {field.type}"
                )
        return table.select(self.schema.names)

    def _check_columns(self, path: Path, columns) -> None:
        missing = [name for name in self.schema.names if name not in columns]
        unknown = [name for name in columns if name not in self.schema.names]
        if missing or unknown:
            parts = [f"missing {missing}"] * bool(missing) + [f"unknown {unknown}"] * bool(unknown)
            raise TableError(f"{path}: table '{self.name}' has columns {' and '.join(parts)}")
