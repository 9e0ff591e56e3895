"""The data contracts: one Parquet schema per module, validated on read, written atomically.

Times are float64 seconds since ``t0`` (the instant load starts); units are in the column names.
"""

from safesync.tables.base import Table, TableError
from safesync.tables.documents import read_document, write_document

__all__ = ["Table", "TableError", "read_document", "write_document"]
