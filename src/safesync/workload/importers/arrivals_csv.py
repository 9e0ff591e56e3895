"""A plain CSV of your own: arrival_s, and optionally prompt_tokens and output_tokens."""

from typing import ClassVar

from safesync.workload.importers.base import spellings
from safesync.workload.importers.csv_text import SecondsCsv, header_of


class ArrivalsCsv(SecondsCsv):
    """Arrival times in seconds, on any clock whose stamps are not negative."""

    name: ClassVar[str] = "arrivals_csv"
    columns: ClassVar[tuple[str, str, str]] = ("arrival_s", "prompt_tokens", "output_tokens")
    tokens_optional: ClassVar[bool] = True

    def recognises(self, head: bytes) -> bool:
        """Tell by the column arrival_s."""
        return bool(spellings(header_of(head) or [], self.columns[0]))
