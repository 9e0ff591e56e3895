"""The fairness guard: how long any learner may go without a merge."""

from pydantic import Field

from safesync.policies.base import Observation

REASON = "fairness"
_ROUNDING_S = 1e-9


def max_staleness_field() -> float | None:
    """Return the parameter of a policy that has the guard."""
    return Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Longest time that any learner may have gone without a merge when the next one "
        "starts, s; at least h_min steps; null: only h_max bounds it. Source: your fairness rule.",
    )


def check_bound(name: str, max_staleness_s: float | None, h_min: int, step_s: float) -> None:
    """Raise ValueError when ``h_min`` steps last longer than the bound of policy ``name``."""
    if max_staleness_s is None:
        return
    tightest_s = h_min * step_s
    if max_staleness_s < tightest_s - _ROUNDING_S:
        raise ValueError(
            f"{name}: max_staleness_s = {max_staleness_s:g} s can't be kept; h_min = "
            f"{h_min} steps of {step_s:g} s last {tightest_s:g} s"
        )


def starves(observation: Observation, max_staleness_s: float | None) -> bool:
    """Whether some learner would exceed the bound if the merge waited one more step."""
    if max_staleness_s is None:
        return False
    next_s = float(observation.staleness_s.max()) + observation.step_s
    return next_s > max_staleness_s + _ROUNDING_S
