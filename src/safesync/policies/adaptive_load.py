"""adaptive_load: a merge when the load is low against its own recent past."""

from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from safesync.policies.base import Decision, Observation, Policy


class Parameters(BaseModel):
    """What the load is, and what it is compared with."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    load_s: int = Field(
        2,
        ge=1,
        description="Completed seconds over which the load is averaged, s. Source: a starting "
        "value; two seconds tell 1 from 4 requests/s more often than not.",
    )
    past_s: int = Field(
        60,
        ge=1,
        description="Recent past that the load is compared with, s. Source: a starting value, two "
        "periods of the default bursts.",
    )
    quantile: float = Field(
        0.25,
        ge=0,
        le=1,
        description="Merge when the load is at most this quantile of the past, no unit. Source: a "
        "starting value.",
    )


class AdaptiveLoad(Policy):
    """Merge when the load of the last seconds is at most a quantile of its recent past.

    The load is the mean count of arrivals over the last ``load_s`` completed seconds, requests/s;
    the past holds that figure for each of the last ``past_s`` seconds, the present one included.
    A quantile, unlike a fixed limit, follows a load that drifts over the day. Source: the usual
    off-peak rule of maintenance windows; ours in this form.
    """

    name: ClassVar[str] = "adaptive_load"
    Parameters: ClassVar[type[BaseModel]] = Parameters

    def decide(self, observation: Observation) -> Decision:
        """Compare; the score is the quantile less the load, requests/s. No load, no merge."""
        p = self.parameters
        recent = observation.counts_per_s[-(p.past_s + p.load_s - 1) :]
        if len(recent) < p.load_s:
            return Decision(merge=False)
        sums = np.concatenate([[0], np.cumsum(recent)])
        loads = (sums[p.load_s :] - sums[: -p.load_s]) / p.load_s
        score = float(np.quantile(loads, p.quantile)) - float(loads[-1])
        return Decision(merge=score >= 0, score=score)


POLICY = AdaptiveLoad
