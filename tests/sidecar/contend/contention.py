"""Starts real ranks the way a measurement does, and never leaves one behind."""

from pathlib import Path

from sidecar.beside import Beside


class Contention(Beside):
    """The ranks of one plan."""

    def __init__(self, folder: Path, starts_s=(), merge_s=1.0, **changes) -> None:
        (folder / "checkpoints").mkdir()
        # as if the load were over, so that ranks end with their last window
        (folder / "stop").touch()
        plan = {
            "ranks": 2,
            "backend": "gloo",
            "rendezvous": str(folder / "rendezvous"),
            "windows": [
                {"merge": merge, "step": 128 * (merge + 1), "start_s": start_s}
                for merge, start_s in enumerate(starts_s)
            ],
            "merge_s": merge_s,
            "style": "blocking",
            "bandwidth_bytes_per_s": None,
            "passes": None,
            "horizon_s": 60.0,
            "parameters": 450_000,
            "fragment_parameters": 100_000,
            "checkpoint_dir": str(folder / "checkpoints"),
            "timeout_s": 20.0,
            "stop": str(folder / "stop"),
            "merges": str(folder / "merges.parquet"),
        } | changes
        super().__init__("safesync.sidecar.contend", folder, plan, plan["ranks"])
