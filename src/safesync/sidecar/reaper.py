"""Outlives a measurement just long enough to end what it started.

Reads process-group ids, one a line, from standard input. When the pipe closes without ``done``
(the measurement was killed and could not clean up itself), every group is ended and the
measurement's scratch folder, the only argument, is removed.
"""

import contextlib
import os
import shutil
import signal
import sys
import time

GRACE_S = 3.0


def end_groups(groups: list[int], grace_s: float = GRACE_S, reap=lambda: None) -> None:
    """Send SIGTERM to every process group, and SIGKILL to what is left after ``grace_s``.

    A parent passes ``reap``, which collects its dead children: a zombie keeps its group alive.
    """
    _signal(groups, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    reap()
    while time.monotonic() < deadline and any(_alive(group) for group in groups):
        time.sleep(0.05)
        reap()
    _signal(groups, signal.SIGKILL)


def _signal(groups: list[int], number: int) -> None:
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups = []
    for line in sys.stdin:
        if line.strip() == "done":
            return
        groups.append(int(line))
    end_groups(groups)
    shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    main()
