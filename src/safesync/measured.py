"""The record of what the measurement's code was, and whether changes of it mattered.

Measurements are not rerun when their code changes, so every change is weighed by hand: either
MEASUREMENT_VERSION rises, or `python -m safesync.measured "why it has no effect"` says why not.
A test fails until one of them is done.
"""

import json
import sys
from hashlib import sha256
from pathlib import Path

from safesync.sidecar.version import MEASUREMENT_VERSION
from safesync.sources import library

RECORD = Path("resources/measured.json")
_FLOW = ("scripts/measure.py", "workflow/rules/measure.smk")


def sources_sha256() -> str:
    """Return the hash of every file that a measurement runs."""
    digest = sha256()
    for file in (*library("sidecar", "outer"), *_FLOW):
        digest.update(file.encode() + b"\0" + Path(file).read_bytes() + b"\0")
    return digest.hexdigest()


def entries() -> list[dict]:
    """Return the record, oldest first: ``version``, ``sources`` (hash) and ``why``."""
    return json.loads(RECORD.read_text(encoding="utf-8"))


def main(why: str) -> None:
    entry = {"version": MEASUREMENT_VERSION, "sources": sources_sha256(), "why": why}
    record = [*entries(), entry] if RECORD.exists() else [entry]
    RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].strip():
        sys.exit('usage: python -m safesync.measured "why the change has no effect, or what it is"')
    main(sys.argv[1])
