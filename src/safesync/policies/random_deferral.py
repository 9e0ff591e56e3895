"""random_deferral: the published "matched random", kept to show its fault."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from safesync.policies.base import Block, Decision, Observation, Policy


class Parameters(BaseModel):
    """The gap aimed at."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    h: int = Field(
        256,
        ge=1,
        description="Mean gap that a single learner's votes would give in an unbounded corridor, "
        "inner steps; at least h_min. Source: the published study's shorter fixed period.",
    )


class RandomDeferral(Policy):
    """Each learner votes at random at each step, and a merge needs all votes: no control at all.

    From ``h_min`` on a learner votes yes with probability ``1 / (h - h_min + 1)``, which for one
    learner alone makes gaps of mean ``h``. All n must agree in the same step, whose probability is
    that to the power n: with the published corridor and eight learners 1.3e-17, so that every merge
    is forced at ``h_max`` and the policy is fixed_h 512 under another name. ``matched_random`` is
    the control that this one was meant to be. Source: the published study, whose artifact votes per
    learner and needs all eight; the probability is ours.
    """

    name: ClassVar[str] = "random_deferral"
    Parameters: ClassVar[type[BaseModel]] = Parameters
    caution: ClassVar[str | None] = (
        "random_deferral is the published study's degenerate control, kept to show its fault: all "
        "learners must vote for a merge in the same step, so that h_max forces nearly every one. "
        "It is no matched-random placement."
    )

    @classmethod
    def check(cls, parameters: Parameters, h_min: int, h_max: int, step_s: float) -> None:
        """Refuse a mean gap below the corridor."""
        if parameters.h < h_min:
            raise ValueError(f"random_deferral: h = {parameters.h} lies below h_min = {h_min}")

    def begin(self, block: Block) -> None:
        """Fix the chance of a yes."""
        super().begin(block)
        h, h_min = self.parameters.h, block.corridor.h_min
        self._rng, self._yes, self._islands = block.rng, 1 / (h - h_min + 1), block.islands

    def decide(self, observation: Observation) -> Decision:
        """Let every learner vote; the score is the share of yes."""
        votes = self._rng.random(self._islands) < self._yes
        return Decision(merge=bool(votes.all()), score=float(votes.mean()))


POLICY = RandomDeferral
