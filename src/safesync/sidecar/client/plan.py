"""What a client is asked to do: the plan file, its arrivals, and the go file that starts it."""

import dataclasses
import math
from pathlib import Path

import pandas as pd

from safesync.tables import TableError, read_document
from safesync.tables.arrivals import ARRIVALS

MIN_PROMPT_IDS = 256  # prompts.py needs this many to keep prompts apart within 16 tokens


@dataclasses.dataclass(frozen=True)
class Plan:
    """One run of the client; times in seconds.

    ``url`` and ``model`` name the OpenAI-compatible server, ``arrivals`` is the table to replay;
    ``requests`` and ``loop_lag`` are the tables to write, ``locust_stats`` (optional) the JSON of
    Locust's own figures. ``ready`` is created when the load could start; ``go`` is then polled
    for. ``stop_s`` (since t0) is when whatever is not finished becomes ``censored``; ``timeout_s``
    is how long one request may take from its sending. Prompts are token ids drawn from
    ``[prompt_ids[0], prompt_ids[1])`` under ``prompt_seed``. ``processes`` share the arrivals.
    """

    url: str
    model: str
    arrivals: Path
    requests: Path
    loop_lag: Path
    ready: Path
    go: Path
    stop_s: float
    timeout_s: float
    prompt_seed: int
    prompt_ids: tuple[int, int]
    processes: int
    locust_stats: Path | None = None


_PATHS = ("arrivals", "requests", "loop_lag", "ready", "go", "locust_stats")


def read_plan(path: str | Path) -> Plan:
    """Return the plan in ``path``; raises TableError with one sentence naming file and field."""
    fields = {field.name: field for field in dataclasses.fields(Plan)}
    required = tuple(name for name in fields if name != "locust_stats")
    document = read_document(path, required=required)
    unknown = sorted(set(document) - set(fields))
    if unknown:
        raise TableError(f"{path}: unknown field '{unknown[0]}', expected {sorted(fields)}")

    def check(name: str, good: bool, expected: str) -> None:
        if not good:
            raise TableError(f"{path}: field '{name}' is {document[name]!r}, expected {expected}")

    for name in ("url", "model", *_PATHS):
        if document.get(name) is not None or name in required:
            value = document[name]
            check(name, isinstance(value, str) and bool(value), "a non-empty string")
    check("url", document["url"].startswith(("http://", "https://")), "an http(s) address")
    for name in ("stop_s", "timeout_s"):
        value = document[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        check(name, number and math.isfinite(value) and value > 0, "a number of seconds above 0")
    seed, ids = document["prompt_seed"], document["prompt_ids"]
    check("prompt_seed", _is_integer(seed) and 0 <= seed < 2**63, "an integer in [0, 2^63)")
    processes = document["processes"]
    check("processes", _is_integer(processes) and processes >= 1, "a whole number from 1")
    check(
        "prompt_ids",
        isinstance(ids, list)
        and len(ids) == 2
        and all(map(_is_integer, ids))
        and 0 <= ids[0] <= ids[1] - MIN_PROMPT_IDS,
        f"[low, high) token ids, at least {MIN_PROMPT_IDS} of them",
    )
    paths = {name: Path(document[name]) for name in _PATHS if document.get(name) is not None}
    return Plan(**(document | paths | {"prompt_ids": tuple(ids)}))


def read_arrivals(path: Path) -> pd.DataFrame:
    """Return the arrivals in ``path``; raises TableError when they cannot be sent."""
    arrivals = ARRIVALS.read(path)
    if arrivals.empty:
        raise TableError(f"{path}: no rows; expected at least one arrival")
    if not arrivals["request_id"].is_unique or arrivals["request_id"].min() < 0:
        raise TableError(f"{path}: column 'request_id' must hold distinct numbers of at least 0")
    if not arrivals["arrival_s"].between(0, float("inf"), inclusive="left").all():
        raise TableError(f"{path}: column 'arrival_s' must hold finite seconds of at least 0")
    for name in ("prompt_tokens", "output_tokens"):
        if arrivals[name].min() < 1:
            raise TableError(f"{path}: column '{name}' must be at least 1 in every row")
    return arrivals


def read_go(path: Path, now_ns: int) -> int:
    """Return ``t0_ns`` (monotonic clock) from the go file; it must lie after ``now_ns``."""
    t0_ns = read_document(path, required=("t0_ns",))["t0_ns"]
    if not _is_integer(t0_ns) or t0_ns <= now_ns:
        raise TableError(
            f"{path}: field 't0_ns' is {t0_ns!r}, expected an instant of the monotonic clock "
            f"after now ({now_ns})"
        )
    return t0_ns


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
