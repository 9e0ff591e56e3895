"""The background of one measurement, as the measurement starts and ends it."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from safesync.learners.corpus import standard_library
from safesync.sidecar.processes import Child, Processes
from safesync.tables import read_document, write_document

TRAINING_NICE = 19
_END_S = 15.0


@dataclass(frozen=True)
class _Started:
    child: Child
    kind: str
    ready: Path
    did: Path


class Background:
    """Starts background processes, knows when they are ready, and ends them.

    ``processes``: the measurement's. ``scratch``: its folder, where ``go.json`` will be.
    ``log_folder`` gets a log of every process. ``cores``: what all of them may use.
    """

    def __init__(
        self, processes: Processes, scratch: Path, log_folder: Path, cores: list[int]
    ) -> None:
        self._processes = processes
        self._scratch = scratch
        self._log_folder = log_folder
        self._cores = cores
        self._started: list[_Started] = []

    @property
    def awaited(self) -> dict[Path, Child]:
        """Return the file that each process makes when it is ready."""
        return {one.ready: one.child for one in self._started}

    def start_load(self, load: Mapping) -> None:
        """Start another tenant: the config's section ``background.load`` as plain values."""
        rates = {key: load[key] for key in load.keys() - {"processes", "nice"}}
        self._start("load", rates, load["processes"], load["nice"])

    def start_training(
        self, training: Mapping, islands: int, pauses_s: Sequence[tuple[float, float]]
    ) -> None:
        """Start the inner steps of ``islands`` islands at the lowest priority.

        ``training``: ``settings`` (values of ``learners.settings.Training``; ``islands`` is set),
        ``step_s`` and ``decay_steps``. ``pauses_s``: [start, end) of merges that they wait for.
        """
        corpus = self._scratch / "corpus.bin"
        corpus.write_bytes(standard_library())
        work = {
            **training,
            "settings": {**training["settings"], "islands": islands},
            "corpus": str(corpus),
            "pauses_s": [list(pause) for pause in pauses_s],
        }
        self._start("training", work, islands, TRAINING_NICE)

    def stop(self) -> list[dict]:
        """End all processes; return what each did. Raises Broken when one can't tell."""
        (self._scratch / "stop").touch()
        deadline = time.monotonic() + _END_S
        for one in self._started:
            self._processes.wait(one.child, deadline)
        return [
            {
                "name": one.child.name,
                "kind": one.kind,
                "nice": one.child.nice,
                "nice_granted": one.child.raised,
                **read_document(one.did),
            }
            for one in self._started
        ]

    def _start(self, kind: str, work: dict, count: int, nice: int) -> None:
        meeting = str(self._scratch / f"background_{kind}")
        plan = {
            "work": {"kind": kind, **work},
            "folder": str(self._scratch),
            "ready": meeting,
            "go": str(self._scratch / "go.json"),
            "stop": str(self._scratch / "stop"),
            "did": meeting,
        }
        path = self._scratch / f"background_{kind}.json"
        write_document(path, plan)
        for index in range(count):
            child = self._processes.start(
                f"background {kind} {index}",
                [sys.executable, "-m", "safesync.sidecar.background", str(path), str(index)],
                self._log_folder / f"background_{kind}{index}.log",
                cores=self._cores,
                nice=nice,
            )
            ready, did = Path(f"{meeting}.{index}"), Path(f"{meeting}.{index}.json")
            self._started.append(_Started(child, kind, ready, did))
