"""The open loop's clock: send at absolute deadlines, whatever the server does."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import gevent

Item = TypeVar("Item")


def walk(
    schedule: Iterable[tuple[float, Item]],
    now: Callable[[], float],
    send: Callable[[Item], object],
) -> None:
    """Call ``send(item)`` for each ``(due_s, item)``, in order, never before it is due.

    ``send`` must not block. Every deadline is measured from t0: a late wake-up is made up for at
    once and never moves the deadlines after it.
    """
    for due_s, item in schedule:
        while (delay_s := due_s - now()) > 0:
            gevent.sleep(delay_s)
        send(item)
