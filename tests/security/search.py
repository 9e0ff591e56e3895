"""Looking for words in all files of a folder, also inside tables, whose bytes are compressed."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq

# what a run writes into its project
WRITTEN = ("results", ".snakemake", "resources/models", "snakemake.out")


def holding(folder: Path, words: Iterable[str], places: Iterable[str] = WRITTEN) -> set[str]:
    """Return the names of the files in ``places`` of ``folder`` that hold any of ``words``."""
    wanted = [word.encode() for word in words]
    return {
        path.name
        for place in places
        for path in [folder / place, *(folder / place).rglob("*")]
        if path.is_file() and any(word in _content(path) for word in wanted)
    }


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:  # a run that goes on renames its files
        return b""
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as file:
            table = file.read()
        content += repr((table.schema.metadata, table.to_pydict())).encode()
    return content
