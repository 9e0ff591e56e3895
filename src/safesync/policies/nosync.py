"""nosync: no merge at all; the capture that every replay of its block is compared with."""

from typing import ClassVar

from safesync.policies.base import Decision, Observation, Policy


class NoSync(Policy):
    """The empty schedule. Source: the study's own reference, "no-sync". Not a policy under test."""

    name: ClassVar[str] = "nosync"
    merges: ClassVar[bool] = False

    def decide(self, observation: Observation) -> Decision:
        """Never merge."""
        return Decision(merge=False)


POLICY = NoSync
