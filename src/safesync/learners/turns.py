"""When each fragment of the model is merged: all at once, or in turn until the next merge."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Turn:
    """One fragment's turn in a merge.

    ``fragment``: its place in the model. In inner steps done: ``taken``, when its pseudo-gradient
    is taken and reduced; ``applied``, when the islands take over what came of it, or None.
    """

    fragment: int
    taken: int
    applied: int | None


def turns(merges: Sequence[int], fragments: int, delay_steps: int) -> list[Turn]:
    """Return the turns of all merges, in the order in which they are taken.

    ``merges``: inner steps done at each, rising; at the last one the training ends, and it has no
    turns. A merge lasts until the next one begins. Its fragments have their turns at an even pace,
    the first at once, as the rounds of a measured overlapped merge have (``sidecar.contend``).
    An update is applied ``delay_steps`` after it was taken, but before its fragment is taken again:
    a pseudo-gradient is always one of the newest outer values. One that the end of the training
    comes before is not applied, since the islands' mean, which closes it, holds what they learned.
    """
    taken = [
        start + (end - start) * fragment // fragments
        for start, end in pairwise(merges)
        for fragment in range(fragments)
    ]
    end = merges[-1]
    latest = [*taken[fragments:], *[end] * fragments]
    applied = [min(at + delay_steps, last) for at, last in zip(taken, latest, strict=False)]
    return [
        Turn(number % fragments, at, late if late < end else None)
        for number, (at, late) in enumerate(zip(taken, applied, strict=True))
    ]
