"""JSON documents (manifest, threshold, verdict): sorted keys, finite numbers, atomic rename."""

import json
from pathlib import Path

from safesync.tables.atomic import replacing
from safesync.tables.base import TableError


def write_document(path: str | Path, document: dict) -> None:
    """Write ``document`` as JSON through a temporary name; refuses NaN and infinity."""
    text = json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n"
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_document(path: str | Path, required: tuple[str, ...] = ()) -> dict:
    """Return the JSON object in ``path``; raises TableError when a ``required`` key is missing."""
    path = Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TableError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise TableError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(document, dict):
        raise TableError(f"{path}: expected a JSON object")
    for key in required:
        if key not in document:
            raise TableError(f"{path}: no field '{key}'")
    return document
