"""When work is due: a steady rate in short periods, at a phase of its own."""

import random
import threading
import time
from collections.abc import Callable, Iterator

# what could not be done for longer than this is given up, so that a slow disk can't be owed more
# and more
_MOST_BEHIND_PERIODS = 5


def due_s(
    period_s: float,
    stopping: threading.Event,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[float]:
    """Yield in every period, until ``stopping``, for how many seconds work has become due.

    That is the time since the last turn, so that rates hold whatever a turn takes; a caller that
    takes longer than a period gets its next turn at once. The first turn comes after a random part
    of a period: processes that start together do not work in step.
    """
    last = clock()
    turn = last + random.uniform(0, period_s)
    while not stopping.wait(max(0.0, turn - clock())):
        now = clock()
        yield min(now - last, _MOST_BEHIND_PERIODS * period_s)
        last = now
        turn = max(turn + period_s, clock())
