"""The end of a rank that does not come from its own work: a signal, or the parent's death."""

import os
import signal
import sys
import threading
from collections.abc import Callable

_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_PARENT_CHECK_S = 1.0


def end_with_signal_or_parent(cleanups: list[Callable[[], None]]) -> None:
    """Watch, in a thread, for SIGTERM, SIGINT and the parent's death; then exit at once.

    Whatever ``cleanups`` holds by then is called first. Must be called before any other thread
    exists, so that all threads block the signals. A signal handler would not do: Python runs it
    only when the main thread is back from the collective that it is blocked in.
    """
    parent = os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    threading.Thread(target=_watch, args=(parent, cleanups), daemon=True).start()


def _watch(parent: int, cleanups: list[Callable[[], None]]) -> None:
    while True:
        received = signal.sigtimedwait(_SIGNALS, _PARENT_CHECK_S)
        if received is None and os.getppid() == parent:
            continue
        for clean in cleanups:
            clean()
        if received is not None:
            os._exit(128 + received.si_signo)
        print("contend: the parent process is gone", file=sys.stderr, flush=True)
        os._exit(1)
