"""What the page needs of one replay."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pandas as pd

from safesync.protocol.blocks import NOSYNC, PROBE, is_control
from safesync.protocol.gates import count


@dataclass(frozen=True)
class Replay:
    """One replay's identity and tables.

    ``policy``: as ``judged_policy`` names it, so that spacing says whose gaps it has.
    ``requests``, ``merges``, ``telemetry``: its tables (REQUESTS without ``chunk_s`` and
    ``chunk_tokens`` will do, and saves memory). ``schedule``: the SCHEDULE rows of its draw, for
    the reason of each merge; may be None. ``manifest``: the measurement's facts; may be empty.
    """

    tier: str
    regime: str
    seed: int
    role: str
    policy: str
    draw: int
    budget: int
    requests: pd.DataFrame
    merges: pd.DataFrame
    telemetry: pd.DataFrame | None = None
    schedule: pd.DataFrame | None = None
    manifest: Mapping = field(default_factory=dict)

    @property
    def is_control(self) -> bool:
        """Whether this is a draw of a control."""
        return is_control(self.policy)

    @property
    def name(self) -> str:
        """The name under which it stands among the replays of its block."""
        if self.is_control:
            return f"{self.policy} draw {self.draw}"
        return self.policy if self.draw == 0 else f"{self.policy} repeat {self.draw}"

    @property
    def style(self) -> str:
        """How its merges ran; blocking where the manifest doesn't say."""
        return self.manifest.get("config", {}).get("merge", {}).get("style", "blocking")

    @property
    def group(self) -> str:
        """The name under which replays are pooled: controls by budget, probes by role and seed."""
        if self.policy == PROBE:
            return f"{self.policy} ({self.role} seed {self.seed})"
        return f"{self.policy} ({count(self.budget, 'merge')})" if self.is_control else self.policy


def captures(replays: Iterable[Replay]) -> dict[tuple[str, str, int], Replay]:
    """Return the nosync capture of every (tier, regime, seed): its first draw."""
    found = {}
    for replay in sorted(replays, key=lambda replay: replay.draw):
        if replay.policy == NOSYNC:
            found.setdefault((replay.tier, replay.regime, replay.seed), replay)
    return found
