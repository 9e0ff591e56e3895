"""fixed_h: a merge every H inner steps, whatever the load."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from safesync.policies.base import Decision, Observation, Policy


class Parameters(BaseModel):
    """The period."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    h: int = Field(
        256,
        ge=1,
        description="Inner steps between merges; inside the corridor. Source: 256 and 512 are the "
        "published study's two baselines.",
    )


class FixedH(Policy):
    """Merge when the gap is ``h``. Source: DiLoCo, Douillard et al., arXiv:2311.08105 (H = 500)."""

    name: ClassVar[str] = "fixed_h"
    Parameters: ClassVar[type[BaseModel]] = Parameters

    @classmethod
    def check(cls, parameters: Parameters, h_min: int, h_max: int, step_s: float) -> None:
        """Refuse a period outside the corridor."""
        if not h_min <= parameters.h <= h_max:
            raise ValueError(
                f"fixed_h: h = {parameters.h} lies outside the corridor {h_min}..{h_max}"
            )

    def decide(self, observation: Observation) -> Decision:
        """Merge at a gap of exactly ``h``, without a score."""
        return Decision(merge=observation.gap >= self.parameters.h)


POLICY = FixedH
