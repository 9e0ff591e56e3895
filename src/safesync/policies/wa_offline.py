"""wa_offline: the oracle, the cheapest schedule there is on the nosync capture."""

from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from safesync.placement import Corridor
from safesync.placement.overlap import overlap_cost
from safesync.policies.base import Block, Decision, Observation, Policy


class Parameters(BaseModel):
    """Whose budget it takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    budget_from: str | None = Field(
        None,
        description="Id of the policy whose schedule of the same block fixes the budget; null: the "
        "budget with the least overlap per merge. Source: your comparison.",
    )


class WaOffline(Policy):
    """Make the feasible schedule of least overlap, with the whole nosync capture known.

    It is exact, by ``Corridor.optimum``: at its budget no schedule overlaps fewer requests on this
    capture. The budget is that of ``budget_from``, given as the reference schedule. Without a
    reference it is the one with the least overlap *per merge* (the least total would always be the
    fewest merges) among the budgets that leave placement freedom, or among all when none does;
    among equals the largest. Source: the bound that the published study's greedy "offline
    calibrated" schedule, which leaves the corridor, was meant to be. An oracle: not deployable.
    """

    name: ClassVar[str] = "wa_offline"
    Parameters: ClassVar[type[BaseModel]] = Parameters
    deployable: ClassVar[bool] = False

    def begin(self, block: Block) -> None:
        """Compute the schedule."""
        source = self.parameters.budget_from
        if source is not None and block.reference is None:
            raise ValueError(
                f"wa_offline: budget_from = '{source}' needs that policy's schedule of this block"
            )
        self._cost = overlap_cost(block.trace.arrival_s, block.trace.done_s, block.corridor)
        if block.reference is None:
            self._gaps = _cheapest_per_merge(block.corridor, self._cost)
        else:
            self._gaps = block.corridor.optimum(len(block.reference), self._cost)

    def decide(self, observation: Observation) -> Decision:
        """Follow the schedule; the score is minus the window's overlap, requests."""
        at = round(observation.now_s / observation.step_s)
        due = observation.gap == self._gaps[observation.merges : observation.merges + 1]
        return Decision(merge=bool(due.any()), score=-float(self._cost[at]))


def _cheapest_per_merge(corridor: Corridor, cost: np.ndarray) -> np.ndarray:
    budgets = [budget for budget in corridor.budgets() if budget.merges]
    free = [budget for budget in budgets if not budget.pinned] or budgets
    if not free:
        return np.empty(0, dtype=np.int64)
    schedules = [corridor.optimum(budget.merges, cost) for budget in reversed(free)]
    return min(schedules, key=lambda gaps: corridor.total_cost(gaps, cost) / len(gaps))


POLICY = WaOffline
