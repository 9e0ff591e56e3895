"""A real trace as a source of arrivals: what a config says of it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from safesync.workload.importers import FormatName


class Trace(BaseModel):
    """Arrivals of a real trace, replayed: every seed takes a slice of it, and none a slice twice.

    The window is divided into slices as long as a run takes; each seed of the run gets one of its
    own, by an order of preference drawn for that seed. Slices that do not meet share no request
    and no burst, so that blocks stay independent evidence; two thinnings of one slice would hold
    the same bursts, and would not. A slice without a request, on which no policy can differ, is
    passed over and counted. Nothing is wrapped around, repeated or stretched unasked: a trace that
    is too short is refused.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: Literal["trace"] = "trace"
    path: str = Field(
        min_length=1,
        description="File of the trace, from the working folder or absolute, no unit. Source: your "
        "traffic, or a published trace.",
    )
    format: FormatName = Field(
        "auto", description="Its format, no unit; auto: told by its header. Source: its publisher."
    )
    window_start_s: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="Start of the part that is used, s from the trace's first row. Source: your "
        "choice; leave out an opening ramp.",
    )
    window_s: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Length of the part that is used, s; null: to the last row. Source: your "
        "choice.",
    )
    slices: Literal["disjoint", "overlapping"] = Field(
        "disjoint",
        description="What a seed takes of the window, no unit; disjoint: a slice of its own; "
        "overlapping: from a uniformly random start, so that seeds share bursts and are no "
        "independent evidence. Source: your choice, where the trace is too short for disjoint.",
    )
    scaling: Literal["none", "thin", "stretch"] = Field(
        "none",
        description="How the window's mean rate is brought to target_rps, no unit; thin: every "
        "request is kept with one probability (pulls dispersion towards Poisson); stretch: time is "
        "multiplied (changes how long bursts and silences last). Source: your choice.",
    )
    target_rps: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Mean rate of the window after scaling, requests/s; null: without scaling. "
        "Source: what the sidecar serves.",
    )
    spread_s: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="Requests of one stamp are spread uniformly over the time after it, s; null: "
        "the format's resolution (mooncake 3, burstgpt 1, others 0); 0: left as they stand. "
        "Source: the resolution of the stamps.",
    )
    lengths: Literal["auto", "trace", "config"] = Field(
        "auto",
        description="Token lengths, no unit; trace: each request's own; config: drawn from the "
        "regime's tokens; auto: the trace's where it has them. Source: your choice.",
    )
    max_prompt_tokens: int | None = Field(
        None,
        ge=1,
        description="Longer prompts of the trace are cut to it, tokens; null: to what the answer "
        "leaves of the sidecar's context. Source: what the sidecar prefills in time.",
    )
    max_output_tokens: int | None = Field(
        None,
        ge=1,
        description="Longer answers of the trace are cut to it, tokens; null: to half the "
        "sidecar's context. Source: what the sidecar decodes in time.",
    )

    @model_validator(mode="after")
    def _check(self) -> "Trace":
        if self.scaling == "none" and self.target_rps is not None:
            raise ValueError(f"target_rps ({self.target_rps:g}) needs scaling: thin or stretch")
        if self.scaling != "none" and self.target_rps is None:
            raise ValueError(f"scaling: {self.scaling} needs target_rps")
        return self

    @property
    def files(self) -> tuple[str, ...]:
        """The files that its arrivals are read from."""
        return (self.path,)
