"""The end of a process that does not come from its own work: a signal, or its parent's death."""

import os
import signal
import sys
import threading
from collections.abc import Callable

_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_PARENT_CHECK_S = 1.0


def end_with_signal_or_parent(
    who: str, cleanups: list[Callable[[], None]], parent: int | None = None
) -> None:
    """Watch, in a thread, for SIGTERM, SIGINT and the parent's death; then exit at once.

    Whatever ``cleanups`` holds by then is called first; ``who`` names the process when its parent
    is gone. ``parent`` is the parent's id, for a parent that nobody else cleans up after: without
    it, one that died before this call is not missed. Must be called before any other thread
    exists, so that all threads block the signals. A signal handler would not do: Python runs it
    only when the main thread is back from the collective or the write that it is blocked in.
    """
    parent = os.getppid() if parent is None else parent
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    threading.Thread(target=_watch, args=(who, parent, cleanups), daemon=True).start()


def _watch(who: str, parent: int, cleanups: list[Callable[[], None]]) -> None:
    while True:
        received = signal.sigtimedwait(_SIGNALS, _PARENT_CHECK_S)
        if received is None and os.getppid() == parent:
            continue
        for clean in cleanups:
            clean()
        if received is not None:
            os._exit(128 + received.si_signo)
        print(f"{who}: the parent process is gone", file=sys.stderr, flush=True)
        os._exit(1)
