"""One run at a time in a results folder."""

import errno
import fcntl
import os
from pathlib import Path

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP)  # some network file systems


class CompanyError(RuntimeError):
    """Another run writes to the folder; the message is one sentence."""


def hold(folder: Path) -> int:
    """Lock ``folder`` for this process and return the descriptor that holds it until it is closed.

    Snakemake's own lock guards it too, until any other run in the working folder ends: that one
    removes the locks of all. Raises CompanyError when another process holds it, OSError when it
    cannot be written to. Where the file system has no locks, nothing is locked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise CompanyError(
            f"{folder}: another run is writing there; wait until it ends, or give this one a "
            "`run:` of its own"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            os.close(descriptor)
            raise
    return descriptor
