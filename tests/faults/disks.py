"""File systems of their own in the place of a folder: small ones that fill up or turn read-only."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Disk:
    """A mounted file system; ``folder`` is where it lies."""

    def __init__(self, folder: Path):
        self.folder = folder

    def fill(self, leaving: int) -> None:
        """Fill all but ``leaving`` bytes."""
        found = os.statvfs(self.folder)
        taken = found.f_bavail * found.f_frsize - leaving
        with (self.folder / "filler").open("wb") as file:
            file.write(bytes(taken))

    def empty(self) -> None:
        """Remove what ``fill`` wrote."""
        (self.folder / "filler").unlink()

    def turn(self, how: str) -> None:
        """Mount it anew: ``ro`` or ``rw``."""
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.folder)], check=True)


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[Disk]:
    """Yield a disk of that size at ``folder``; it is gone when the context is left."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a file system")
    folder.mkdir(parents=True, exist_ok=True)
    size = f"size={mebibytes}m"
    mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"root may not mount here, as in a container: {done.stderr.strip()}")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
