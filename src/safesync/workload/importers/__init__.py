"""Real traces: one file per format, and what they share (batches in bounded memory, checks).

A new format is a subclass of ``base.Format`` (or ``csv_text.CsvFormat``) in a file of its own, a
member of ``reading.FORMATS`` and of ``FormatName``, the name that a config writes. This module
itself loads nothing, so that a config can name a format without pyarrow.
"""

from typing import Literal

FormatName = Literal[
    "auto", "azure_2023", "azure_2024", "burstgpt", "mooncake", "arrivals_csv", "arrivals_parquet"
]
