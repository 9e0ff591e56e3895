"""How the rounds of a window are spread over it: the styles of a merge.

A style says when the next round is due and, on rank 0, what it merges. When is the same on every
rank, so all sleep until then and none waits for rank 0 in a collective.
"""

from collections.abc import Sequence
from typing import Protocol

from safesync.outer import RoundCost, payload_bytes, split
from safesync.sidecar.contend.cursor import Share, part_size
from safesync.sidecar.contend.pace import Pace
from safesync.sidecar.contend.plan import Plan
from safesync.tables.plans import PlanError

_PACED = 0.9  # share of an overlapped window over which its rounds are spread


class Style(Protocol):
    """What a rank asks in every window; ``done``: the costs of its rounds so far."""

    warm_up: tuple[Share, ...]

    def due_s(self, done: Sequence[RoundCost], length_s: float) -> float:
        """Return when the next round or the end is due, seconds after the window's start."""

    def choose(self, done: Sequence[RoundCost], left_s: float, at_boundary: bool) -> Share:
        """Return what the round that is due merges; NONE ends the window."""

    def observe(self, share: Share, duration_s: float) -> None:
        """Learn how long a round took."""


class Blocking:
    """Fills the window with rounds at full speed and ends it on time."""

    warm_up = (Share.WHOLE, Share.PART)

    def __init__(self) -> None:
        self._pace = Pace()

    def due_s(self, done: Sequence[RoundCost], length_s: float) -> float:
        return 0.0

    def choose(self, done: Sequence[RoundCost], left_s: float, at_boundary: bool) -> Share:
        return self._pace.choose(left_s, at_boundary)

    def observe(self, share: Share, duration_s: float) -> None:
        self._pace.observe(share, duration_s)


class Throttled:
    """Reduces at most ``bytes_per_s`` of the window, in parts, and lasts until its planned end.

    A part begins when the bytes before it have been paid for by the time since the window's start,
    and only if it can be paid for before the end: no burst is longer than a part, and the cap
    holds for the whole window.
    """

    warm_up = (Share.PART, Share.PART)

    def __init__(self, bytes_per_s: float, part_bytes: int, merge_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._most_bytes = bytes_per_s * merge_s - part_bytes
        if self._most_bytes < 0:
            raise PlanError(
                f"bandwidth_bytes_per_s {bytes_per_s:g} does not pay for one part of a fragment, "
                f"{part_bytes} bytes, within merge_s {merge_s:g}; raise it"
            )
        self._pace = Pace()

    def due_s(self, done: Sequence[RoundCost], length_s: float) -> float:
        reduced = _reduced(done)
        return reduced / self._bytes_per_s if reduced <= self._most_bytes else length_s

    def choose(self, done: Sequence[RoundCost], left_s: float, at_boundary: bool) -> Share:
        if _reduced(done) > self._most_bytes:
            return Share.NONE
        return self._pace.choose(left_s, at_boundary=False)

    def observe(self, share: Share, duration_s: float) -> None:
        self._pace.observe(share, duration_s)


class Overlapped:
    """Merges ``rounds`` whole fragments at an even pace, and lasts until the window's end.

    The last tenth of the window has no rounds of its own: it is there for those that a busy machine
    has delayed, since what is not merged by the end would delay the next merge.
    """

    warm_up = (Share.WHOLE, Share.WHOLE)

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def due_s(self, done: Sequence[RoundCost], length_s: float) -> float:
        if len(done) == self._rounds:
            return length_s
        return _PACED * length_s * len(done) / self._rounds

    def choose(self, done: Sequence[RoundCost], left_s: float, at_boundary: bool) -> Share:
        return Share.WHOLE if len(done) < self._rounds else Share.NONE

    def observe(self, share: Share, duration_s: float) -> None:
        """Nothing: its rounds are those of the plan, whatever they take."""


def style_of(plan: Plan) -> Style:
    """Return the style that ``plan`` names."""
    if plan.style == "throttled":
        part = part_size(plan.fragment_parameters)
        return Throttled(plan.bandwidth_bytes_per_s, payload_bytes(part, plan.ranks), plan.merge_s)
    if plan.style == "overlapped":
        fragments = split(plan.parameters, plan.fragment_parameters)
        return Overlapped(plan.passes * len(fragments))
    return Blocking()


def _reduced(done: Sequence[RoundCost]) -> int:
    return sum(cost.reduced_bytes for cost in done)
