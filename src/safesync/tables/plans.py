"""Plans: what a process is told by its parent, as a JSON document that is checked when read."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from safesync.tables.base import TableError
from safesync.tables.documents import read_document


class PlanError(ValueError):
    """The plan cannot be run; the message is one sentence that names file and field."""


class StrictPlan(BaseModel):
    """A plan, or a part of one: no unknown field, and no change once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_Plan = TypeVar("_Plan", bound=BaseModel)


def read_plan(path: str | Path, plan: type[_Plan]) -> _Plan:
    """Return the ``plan`` in the JSON file ``path``. Raises PlanError."""
    try:
        return plan.model_validate(read_document(path))
    except TableError as error:
        raise PlanError(str(error)) from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "plan"
        raise PlanError(f"{path}: {field}: {first['msg']}") from error
