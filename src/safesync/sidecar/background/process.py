"""One process of the background: get ready, work from the go to the stop, tell what was done."""

import resource
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from safesync.sidecar.background import load
from safesync.sidecar.background.plan import Load, Plan
from safesync.sidecar.go import wait_for_go
from safesync.tables import write_document

_STOP_POLL_S = 0.05


def run(plan: Plan, index: int, cleanups: list[Callable[[], None]]) -> None:
    """Work from the go to the stop, then write what was done.

    The document holds ``seconds`` worked, ``cpu_s`` (user and system, of the whole process) and
    what the parts of the work tell. Raises OSError, TableError and ValueError.
    """
    parts = _parts(plan, index, cleanups)
    stopping = threading.Event()
    Path(f"{plan.ready}.{index}").touch()
    wait_for_go(plan.go)
    begin_s, begin_cpu_s = time.monotonic(), _cpu_s()
    with ThreadPoolExecutor(max_workers=max(1, len(parts))) as pool:
        working = [pool.submit(part, stopping) for part in parts]
        while not plan.stop.exists() and not any(part.done() for part in working):
            time.sleep(_STOP_POLL_S)
        stopping.set()
    did = {"seconds": time.monotonic() - begin_s, "cpu_s": _cpu_s() - begin_cpu_s}
    for part in working:
        did |= part.result()
    write_document(f"{plan.did}.{index}.json", did)


def _parts(
    plan: Plan, index: int, cleanups: list[Callable[[], None]]
) -> list[Callable[[threading.Event], dict]]:
    """Return what runs side by side until the event is set, each in a thread of its own."""
    if isinstance(plan.work, Load):
        file = plan.folder / f"background.{index}.bin"
        cleanups.append(partial(file.unlink, missing_ok=True))
        return load.parts(plan.work, file)
    # torch takes a second to load, and only this kind needs it
    from safesync.sidecar.background.training import Island

    return [Island(plan.work, index, plan.go).train]


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
