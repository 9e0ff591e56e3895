"""adaptive_tokens: a merge whenever enough tokens have been trained on, whatever the load."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from safesync.policies.base import Decision, Observation, Policy


class Parameters(BaseModel):
    """The target."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target_tokens: float = Field(
        500_000.0,
        gt=0,
        allow_inf_nan=False,
        description="Tokens per island since the last merge, mean over islands, above which it "
        "merges, tokens. Source: 2,048 tokens per step (published study) for about 250 steps, the "
        "middle of its corridor on a logarithmic scale.",
    )


class AdaptiveTokens(Policy):
    """Merge when the islands' mean tokens since the last merge exceed ``target_tokens``.

    Source: DiLoCo counts its period in steps of a fixed batch (Douillard et al.,
    arXiv:2311.08105); islands of unequal speed or batch are compared by tokens. It sees no load.
    """

    name: ClassVar[str] = "adaptive_tokens"
    Parameters: ClassVar[type[BaseModel]] = Parameters

    def decide(self, observation: Observation) -> Decision:
        """Compare the tokens with the target; the score is their ratio less 1."""
        score = float(observation.tokens.mean()) / self.parameters.target_tokens - 1.0
        return Decision(merge=score > 0, score=score)


POLICY = AdaptiveTokens
