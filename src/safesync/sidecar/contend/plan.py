"""The plan of a contention: what the parent decided, read by every rank."""

from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from safesync.tables import TableError, read_document


class PlanError(ValueError):
    """The plan cannot be run; the message is one sentence that names file and field."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Window(_Strict):
    """One planned merge window."""

    merge: int = Field(ge=0, description="ordinal of the merge in its schedule")
    step: int = Field(ge=0, description="inner steps done when it starts")
    start_s: float = Field(ge=0, allow_inf_nan=False, description="seconds since t0")


class Plan(_Strict):
    """What all ranks do, and through which files they and their parent meet."""

    ranks: int = Field(ge=1, description="processes that merge")
    backend: Literal["gloo", "nccl"] = Field(description="nccl needs one GPU per rank")
    rendezvous: Path = Field(description="file through which ranks meet; must not exist yet")
    windows: tuple[Window, ...] = Field(description="in order, without overlap")
    merge_s: float = Field(gt=0, allow_inf_nan=False, description="seconds of one window")
    parameters: int = Field(ge=1, description="fp32 parameters of the merged model")
    fragment_parameters: int = Field(ge=1, description="parameters merged per round")
    checkpoint_dir: Path = Field(description="existing folder for rank 0's outer state")
    timeout_s: float = Field(gt=0, allow_inf_nan=False, description="time-out of a collective")
    ready: Path = Field(description="rank r makes '<ready>.<r>' when it waits for the go")
    go: Path = Field(description="the parent writes t0_ns, on the monotonic clock, here")
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
        return self


def read_plan(path: str | Path) -> Plan:
    """Return the plan in ``path``. Raises PlanError."""
    try:
        return Plan.model_validate(read_document(path))
    except TableError as error:
        raise PlanError(str(error)) from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "plan"
        raise PlanError(f"{path}: {field}: {first['msg']}") from error
