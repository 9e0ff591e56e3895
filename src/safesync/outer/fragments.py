"""Fragments: contiguous ranges of the flat model, merged one per round."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fragment:
    """Parameters ``[start, stop)`` of the flat model."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """Return the number of parameters."""
        return self.stop - self.start

    @property
    def range(self) -> slice:
        """Return the slice of a flat buffer that holds this fragment."""
        return slice(self.start, self.stop)

    def __str__(self) -> str:
        return f"parameters {self.start}..{self.stop}"


def split(parameters: int, size: int) -> list[Fragment]:
    """Return the fragments of ``size`` parameters that tile the model; the last may be shorter."""
    return [Fragment(start, min(start + size, parameters)) for start in range(0, parameters, size)]
