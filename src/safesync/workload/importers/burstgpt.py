"""BurstGPT, releases v1 to v3 (github.com/HPMLL/BurstGPT, CC-BY-4.0)."""

from typing import ClassVar

from safesync.workload.importers.csv_text import SecondsCsv


class BurstGpt(SecondsCsv):
    """Seconds from local midnight (UTC+8) of the first day, at a resolution of 1 s.

    Rows without response tokens are requests that failed. Release v3 inserts 'Session ID' and
    'Elapsed time' and writes stamps as decimals; columns are read by name, so that all releases
    are one format. Requests of one second came one after another inside it (BurstGPT issue 2).
    """

    name: ClassVar[str] = "burstgpt"
    columns: ClassVar[tuple[str, str, str]] = ("Timestamp", "Request tokens", "Response tokens")
    grid_s: ClassVar[float] = 1.0
