"""Starts the background's processes the way a measurement does."""

import json

from sidecar.beside import Beside

MODULE = "safesync.sidecar.background"


class Processes(Beside):
    """The processes of one plan; ``work`` is what each of them does."""

    def __init__(self, tmp_path, work, processes=1, **changes) -> None:
        plan = {
            "work": work,
            "folder": str(tmp_path),
            "stop": str(tmp_path / "stop"),
            "did": str(tmp_path / "did"),
        }
        super().__init__(MODULE, tmp_path, plan | changes, expected=processes)

    def stop(self) -> list[dict]:
        """Make the stop file; return what every process did, which must end well and silently."""
        (self.folder / "stop").touch()
        for index in range(len(self.processes)):
            assert self.end(index, 20) == (0, "")
        return [
            json.loads((self.folder / f"did.{index}.json").read_text())
            for index in range(len(self.processes))
        ]
