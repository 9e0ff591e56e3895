"""The stop rule: how rank 0 fills a window and ends it on time."""

from collections import deque
from statistics import fmean

from safesync.sidecar.contend.cursor import Share

_RECENT_ROUNDS = 3
_WHOLE_MARGIN = 2.0


class Pace:
    """Chooses the next round's share from how long the last rounds of each kind took.

    A whole fragment is begun only when twice its recent duration is left, so that one that takes
    twice as long still ends in time. What then remains is filled with parts, and ends at the part
    boundary that is expected to lie nearest to the planned end: on time to within half a part.
    """

    def __init__(self) -> None:
        self._durations_s = {
            share: deque(maxlen=_RECENT_ROUNDS) for share in (Share.PART, Share.WHOLE)
        }

    def observe(self, share: Share, duration_s: float) -> None:
        """Learn how long a round took; each kind needs one before the first choice."""
        self._durations_s[share].append(duration_s)

    def choose(self, left_s: float, at_boundary: bool) -> Share:
        """Return what fits into the ``left_s`` seconds before the planned end."""
        if at_boundary and left_s >= _WHOLE_MARGIN * self._recent_s(Share.WHOLE):
            return Share.WHOLE
        if left_s >= self._recent_s(Share.PART) / 2:
            return Share.PART
        return Share.NONE

    def _recent_s(self, share: Share) -> float:
        return fmean(self._durations_s[share])
