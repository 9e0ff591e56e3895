"""The plan of a contention: what the parent decided, read by every rank."""

from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from safesync.tables.merges import planned_ends_s
from safesync.tables.plans import StrictPlan


class Window(StrictPlan):
    """One planned merge window."""

    merge: int = Field(ge=0, description="ordinal of the merge in its schedule")
    step: int = Field(ge=0, description="inner steps done when it starts")
    start_s: float = Field(ge=0, allow_inf_nan=False, description="seconds since t0")


class Plan(StrictPlan):
    """What all ranks do, and through which files they and their parent meet."""

    ranks: int = Field(ge=1, description="processes that merge")
    backend: Literal["gloo", "nccl"] = Field(description="nccl needs one GPU per rank")
    rendezvous: Path = Field(description="file through which ranks meet; must not exist yet")
    windows: tuple[Window, ...] = Field(description="in order, without overlap")
    merge_s: float = Field(gt=0, allow_inf_nan=False, description="seconds of one window")
    parameters: int = Field(ge=1, description="fp32 parameters of the merged model")
    fragment_parameters: int = Field(ge=1, description="parameters merged per round")
    checkpoint_dir: Path = Field(description="existing folder for rank 0's outer state")
    style: Literal["blocking", "throttled", "overlapped"] = Field(
        description="how the rounds of a window are spread, see contend.style"
    )
    bandwidth_bytes_per_s: float | None = Field(
        gt=0, description="throttled: what a rank reduces at most"
    )
    passes: int | None = Field(ge=1, description="overlapped: merges of the whole model per window")
    horizon_s: float = Field(gt=0, allow_inf_nan=False, description="end of the load, since t0")
    timeout_s: float = Field(gt=0, allow_inf_nan=False, description="time-out of a collective")
    ready: Path = Field(description="rank r makes '<ready>.<r>' when it waits for the go")
    go: Path = Field(description="the parent writes t0_ns, on the monotonic clock, here")
    stop: Path = Field(description="the parent makes it after the load; until then ranks stay")
    merges: Path = Field(description="where rank 0 writes the table 'merges'")

    @model_validator(mode="after")
    def _is_consistent(self) -> "Plan":
        if self.fragment_parameters > self.parameters:
            raise ValueError(
                f"fragment_parameters is {self.fragment_parameters}, expected at most "
                f"parameters, {self.parameters}"
            )
        for one, other in pairwise(self.windows):
            if other.start_s < one.start_s + self.merge_s:
                raise ValueError(
                    f"merge {other.merge} starts at {other.start_s} s, inside merge {one.merge}, "
                    f"which lasts until {one.start_s + self.merge_s} s"
                )
        for style, field in (("throttled", "bandwidth_bytes_per_s"), ("overlapped", "passes")):
            if self.style == style and getattr(self, field) is None:
                raise ValueError(f"style is {style}, so {field} must be a number")
        if self.windows and self.windows[-1].start_s >= self.horizon_s:
            raise ValueError(
                f"merge {self.windows[-1].merge} starts at {self.windows[-1].start_s} s, expected "
                f"before horizon_s, {self.horizon_s}"
            )
        return self

    def ends_s(self) -> list[float]:
        """Return when each window shall end, seconds since t0."""
        starts_s = [window.start_s for window in self.windows]
        return planned_ends_s(
            starts_s, style=self.style, merge_s=self.merge_s, horizon_s=self.horizon_s
        ).tolist()
