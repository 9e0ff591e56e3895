"""The probe of the client's own event loop: a busy loop looks like a slow server otherwise."""

from collections.abc import Callable

import gevent

INTERVAL_S = 0.05


def probe(now: Callable[[], float], samples: list[tuple[float, float]]) -> None:
    """Append ``(due_s, lag_s)`` to ``samples`` every 50 ms, until killed.

    The deadlines are absolute multiples of the interval, and one that a blocked loop has missed is
    a sample too: a stall of 0.5 s gives ten, not one, so that quantiles weigh it by its length.
    """
    tick = 1
    while True:
        due_s = tick * INTERVAL_S
        while (delay_s := due_s - now()) > 0:
            gevent.sleep(delay_s)
        samples.append((due_s, now() - due_s))
        tick += 1
