"""How a pipeline job speaks: progress to the terminal and its log, an error as one sentence."""

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def job(name: str, log: str) -> Iterator[Callable[[str], None]]:
    """Yield ``say(line)``; end the process with status 1 and one sentence when the body fails.

    Errors that are meant for the user (ValueError, RuntimeError, OSError and their kinds) are told
    as they are; anything else is a fault of ours and leaves its traceback in ``log``.
    """
    path = Path(log)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:

        def say(line: str) -> None:
            for target in (file, sys.stderr):
                print(f"{name}: {line}", file=target, flush=True)

        try:
            yield say
        except (ValueError, RuntimeError, OSError) as error:
            say(str(error))
            sys.exit(1)
        except Exception:
            say(f"a fault in safesync itself; the traceback is in {log}")
            traceback.print_exc(file=file)
            sys.exit(1)


def in_tenths(tell: Callable[[int], None]) -> Callable[[float], None]:
    """Return a progress callback (share, 0 to 1) that calls ``tell`` once per further tenth."""
    told = 0

    def progress(share: float) -> None:
        nonlocal told
        if int(share * 10) > told:
            told = int(share * 10)
            tell(told)

    return progress
