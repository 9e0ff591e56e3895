"""pressure_gate: a fixed period, put off while the machine is under pressure."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from safesync.policies.base import Decision, Observation, Policy


class Parameters(BaseModel):
    """The period and the gate."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    threshold: float = Field(
        0.60,
        ge=0,
        le=1,
        description="A due merge waits while the pressure is above it, no unit. Source: the "
        "published study, 0.60; 0.45 in its matched variant.",
    )
    h: int = Field(
        256,
        ge=1,
        description="Inner steps after which a merge is due; inside the corridor. Source: the "
        "published study's shorter fixed period.",
    )


class PressureGate(Policy):
    """Merge at the first boundary from a gap of ``h`` on at which no pressure exceeds the gate.

    The pressure is the largest of the network, serving and checkpoint signals: a merge needs all
    three resources, so one that is saturated is enough to wait for. Source: the published study's
    pressure gate, for its threshold and its matched variant; the combination of the signals is
    ours.
    """

    name: ClassVar[str] = "pressure_gate"
    Parameters: ClassVar[type[BaseModel]] = Parameters

    @classmethod
    def check(cls, parameters: Parameters, h_min: int, h_max: int, step_s: float) -> None:
        """Refuse a period outside the corridor."""
        if not h_min <= parameters.h <= h_max:
            raise ValueError(
                f"pressure_gate: h = {parameters.h} lies outside the corridor {h_min}..{h_max}"
            )

    def decide(self, observation: Observation) -> Decision:
        """Compare the pressure with the gate; the score is the margin below it."""
        signals = observation.signals
        pressure = max(signals.network, signals.serving, signals.checkpoint)
        score = self.parameters.threshold - pressure
        return Decision(merge=observation.gap >= self.parameters.h and score >= 0, score=score)


POLICY = PressureGate
