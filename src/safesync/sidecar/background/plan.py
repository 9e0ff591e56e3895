"""The plan of a background: what the parent decided, read by every process of it."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from safesync.learners.settings import Training
from safesync.tables.plans import StrictPlan


class Load(StrictPlan):
    """Another tenant's work, per process."""

    kind: Literal["load"]
    cpu_share: float = Field(ge=0, le=1, description="share of a core's time that it computes")
    network_bytes_per_s: float = Field(ge=0, allow_inf_nan=False, description="sent over loopback")
    disk_bytes_per_s: float = Field(ge=0, allow_inf_nan=False, description="written and fsynced")


class InnerSteps(StrictPlan):
    """The inner steps of training islands, one island per process."""

    kind: Literal["training"]
    settings: Training = Field(description="sizes of the model; its islands are the processes")
    step_s: float = Field(gt=0, allow_inf_nan=False, description="time from step to step, at least")
    decay_steps: int = Field(ge=1, description="inner step at which the learning rate is lowest")
    corpus: Path = Field(description="the bytes to train on")
    pauses_s: tuple[tuple[float, float], ...] = Field(
        description="[start, end) since t0: windows of merges that the islands wait for"
    )


class Plan(StrictPlan):
    """What each process does, and through which files it and its parent meet."""

    work: Load | InnerSteps = Field(discriminator="kind")
    folder: Path = Field(description="existing folder that it may write to")
    ready: Path = Field(description="process i makes '<ready>.<i>' when it waits for the go")
    go: Path = Field(description="the parent writes t0_ns here; the work begins at once")
    stop: Path = Field(description="the parent makes this file when the work shall end")
    did: Path = Field(description="process i then writes '<did>.<i>.json', what it really did")
