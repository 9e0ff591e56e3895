"""A training run: its islands started as processes, watched, and always ended."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path

import pandas as pd

from safesync.learners.corpus import standard_library
from safesync.learners.settings import DAMAGED, LOST_A_PEER, Plan, Training
from safesync.tables import TableError, read_document, write_document
from safesync.tables.atomic import replacing
from safesync.tables.learners import LEARNERS

_POLL_S = 0.1
_GRACE_S = 5.0
_ENDED = "all islands were ended"
_TAKEN_UP = ", and the next run takes up the last checkpoint"


class TrainingError(RuntimeError):
    """A training run broke; the message is one sentence that names the island."""


class DamagedCheckpointError(TrainingError):
    """What a stopped run left cannot be read; the message names the file."""


def train(
    settings: Training,
    folder: Path,
    *,
    seed: int,
    data: tuple[int, int],
    steps: int,
    merges: Iterable[int],
    decay_steps: int,
    fragments: int = 1,
    delay_steps: int = 0,
    say: Callable[[str], None],
) -> tuple[pd.DataFrame, dict]:
    """Train islands with merges after the inner steps ``merges``; return LEARNERS rows and facts.

    ``data``: the seed's slot of the corpus (``corpus.slot_of``) and the number of slots. One more
    merge follows the last of ``steps``, so that every step counts in the merged model.
    ``decay_steps``: the step at which the learning rate's cosine ends. ``fragments`` and
    ``delay_steps``: how an overlapped merge reaches the islands (``turns.turns``); the defaults
    are a blocking one. ``folder`` is scratch: what a stopped run of the same plan left there is
    taken up, unless it is damaged, and it is removed when the training is done. ``say`` is told
    the progress. Facts: those of ``island.run``, the plan's values, and ``corpus_sha256``.

    Raises TrainingError, also when another process trains in ``folder`` or the one that started
    this one is gone, and ValueError for a plan that cannot be trained.
    """
    plan = Plan(
        **settings.model_dump(),
        seed=seed,
        slot=data[0],
        slots=data[1],
        steps=steps,
        decay_steps=decay_steps,
        merges=tuple(merges),
        fragments=fragments,
        delay_steps=delay_steps,
        folder=folder,
    )
    corpus = standard_library()
    identity = plan.model_dump(mode="json", exclude={"folder", "timeout_s"})
    identity |= {"corpus_sha256": sha256(corpus).hexdigest()}
    with _alone_in(folder):
        prepare(plan, identity, corpus)
        try:
            _run_islands(plan, say)
        except DamagedCheckpointError as error:
            say(f"{error}; starts anew")
            shutil.rmtree(plan.checkpoints)
            prepare(plan, identity, corpus)
            _run_islands(plan, say)
        rows, facts = LEARNERS.read_with_metadata(plan.result)
        shutil.rmtree(folder)
    return rows, facts | identity


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep other trainings out of ``folder``, which is made; TrainingError when one is in it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainingError(
                f"{folder}: another process trains here; wait for it or end it"
            ) from None
        except OSError:
            pass  # a file system without locks keeps nobody out
        yield


def prepare(plan: Plan, identity: dict, corpus: bytes) -> None:
    """Make the folder ready to meet in, with no checkpoint but one of this very run."""
    note = plan.folder / "identity.json"
    try:
        same = read_document(note) == identity
    except TableError:
        same = False
    if not same:
        shutil.rmtree(plan.checkpoints, ignore_errors=True)
    plan.checkpoints.mkdir(parents=True, exist_ok=True)
    plan.rendezvous.unlink(missing_ok=True)
    plan.result.unlink(missing_ok=True)
    with replacing(plan.corpus) as temporary:
        temporary.write_bytes(corpus)
    write_document(note, identity)
    write_document(plan.folder / "plan.json", plan.model_dump(mode="json"))


def _run_islands(plan: Plan, say: Callable[[str], None]) -> None:
    """Start every island and wait for all; when one fails, or we do, all are ended."""
    logs = [plan.folder / f"island-{island}.log" for island in range(plan.islands)]
    parent = os.getppid()
    processes: list[subprocess.Popen] = []
    with ExitStack() as stack:
        told = plan.folder / "progress"
        outputs = [stack.enter_context(told.open("wb")), *[subprocess.DEVNULL] * plan.islands]
        progress = stack.enter_context(told.open(encoding="utf-8"))
        # the islands end by themselves when this process is killed outright
        stack.callback(_end, processes)
        for island, log in enumerate(logs):
            with log.open("wb") as errors:
                processes.append(
                    subprocess.Popen(
                        [
                            sys.executable,
                            "-m",
                            "safesync.learners",
                            str(plan.folder / "plan.json"),
                            str(island),
                            str(os.getpid()),
                        ],
                        stdin=subprocess.DEVNULL,
                        stdout=outputs[island],
                        stderr=errors,
                        env=os.environ | {"OMP_NUM_THREADS": "1"},
                    )
                )
        while any(process.poll() is None for process in processes):
            for line in progress:
                say(line.rstrip())
            if any(process.returncode for process in processes):
                break
            if os.getppid() != parent:
                raise TrainingError(f"what started this training is gone; {_ENDED}{_TAKEN_UP}")
            time.sleep(_POLL_S)
        for line in progress:
            say(line.rstrip())
        _check(processes, logs)


def _check(processes: list[subprocess.Popen], logs: list[Path]) -> None:
    """Raise TrainingError for the island that failed by itself, rather than for want of a peer.

    DamagedCheckpointError where that is the reason.
    """
    failed = [island for island, process in enumerate(processes) if process.returncode]
    if not failed:
        return
    if all(processes[island].returncode == LOST_A_PEER for island in failed):
        # the lost one may take a moment longer to be gone
        time.sleep(_POLL_S)
        failed = [island for island, process in enumerate(processes) if process.poll()]
    failed.sort(key=lambda island: processes[island].returncode == LOST_A_PEER)
    island, code = failed[0], processes[failed[0]].returncode
    if code == DAMAGED:
        raise DamagedCheckpointError(_last_line(logs[island]))
    how = (
        f"was killed by {signal.Signals(-code).name}"
        if code < 0
        else f"ended with status {code}; it said: {_last_line(logs[island])}"
    )
    # what an island refuses by itself, it will refuse again
    then = _TAKEN_UP if code < 0 or code == LOST_A_PEER else ""
    raise TrainingError(f"training island {island} {how}; {_ENDED}{then}")


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][:300] if said else "nothing"


def _end(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _GRACE_S
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
