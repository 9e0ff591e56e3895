"""The go: what every process beside the sidecar waits for before the load starts."""

import time
from pathlib import Path

from safesync.tables import read_document

_POLL_S = 0.05


def wait_for_go(path: Path) -> dict:
    """Return what the parent wrote to ``path``, ``t0_ns`` in it, as soon as it is there."""
    while not path.exists():
        time.sleep(_POLL_S)
    return read_document(path, required=("t0_ns",))
