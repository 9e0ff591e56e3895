"""How a pipeline job speaks: progress to the terminal and its log, an error as one sentence."""

import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def job(name: str, log: str) -> Iterator[Callable[[str], None]]:
    """Yield ``say(line)``; end the process with one sentence when the body fails.

    Errors that are meant for the user (ValueError, RuntimeError, OSError and their kinds) are told
    as they are; anything else is a fault of ours and leaves its traceback in ``log``. The status
    is 1, after an interrupt 130.
    """
    path = Path(log)
    path.parent.mkdir(parents=True, exist_ok=True)
    # unbuffered: what a full disk does not take must not come up again when the file is closed
    with path.open("wb", buffering=0) as file:

        def write(text: str) -> None:
            with suppress(OSError):
                file.write(text.encode())

        def say(line: str) -> None:
            print(f"{name}: {line}", file=sys.stderr, flush=True)
            write(f"{name}: {line}\n")

        try:
            yield say
        except (ValueError, RuntimeError, OSError) as error:
            say(str(error))
            sys.exit(1)
        except KeyboardInterrupt:
            say("interrupted; nothing of it is taken as complete")
            sys.exit(128 + signal.SIGINT)
        except Exception:
            say(f"a fault in safesync itself; the traceback is in {log}")
            write(traceback.format_exc())
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
