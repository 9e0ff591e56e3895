"""Optimal stopping over a forecast: merge now, or is waiting expected to be cheaper?

The load is forecast as a Markov chain over a few levels, one transition per stage. At each stage
the merge may be made, at a cost that depends on stage and level; at the last one it must be. The
expected cost of the best rule follows by backward induction (Bellman, Dynamic Programming, 1957;
Puterman, Markov Decision Processes, 1994, section 3.4).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from safesync.policies import fairness
from safesync.policies.base import Block, Decision, Observation, Policy
from safesync.policies.foresight import Foresight, forecast_error_field

_DIGITS = 9


def continuation(transition: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return the expected cost of the best rule that does not stop now, by level now: (levels,).

    transition: shape (levels, levels), probabilities of one stage, rows sum to 1. costs: shape
    (stages, levels), what stopping costs at the next stage and at each one after it; at the last it
    is obligatory.
    """
    value = costs[-1]
    for cost in costs[-2::-1]:
        value = np.minimum(cost, transition @ value)
    return transition @ value


def window_arrivals(transition: np.ndarray, rates_rps: np.ndarray, seconds: float) -> np.ndarray:
    """Return the arrivals expected in the next ``seconds``, by level now: shape (levels,).

    transition: of one second; rates_rps: expected arrivals in the second that follows a level.
    """
    ahead, total = rates_rps, np.zeros_like(rates_rps)
    for second in range(math.ceil(seconds)):
        total = total + min(1.0, seconds - second) * ahead
        ahead = transition @ ahead
    return total


@dataclass(frozen=True)
class LoadForecast:
    """The load as a chain of n levels, seen from now.

    ``belief``: probability of each level now, shape (n,). ``transition``: of one second, shape
    (n, n). ``rates_rps``: expected arrivals in the second that follows a level, shape (n,).
    """

    belief: np.ndarray
    transition: np.ndarray
    rates_rps: np.ndarray


class StoppingParameters(BaseModel):
    """What a merge costs, in the learners' eyes and the sidecar's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    loss_weight: float = Field(
        0.5,
        ge=0,
        allow_inf_nan=False,
        description="Cost of merging before the loss has fallen by its scale, no unit. Source: the "
        "published score's weight of the loss.",
    )
    tokens_weight: float = Field(
        0.5,
        ge=0,
        allow_inf_nan=False,
        description="Cost of merging before the tokens have reached their scale, no unit. Source: "
        "the published score's weight of the tokens.",
    )
    staleness_weight: float = Field(
        0.5,
        ge=0,
        allow_inf_nan=False,
        description="Cost of merging at a staleness of its scale, no unit. Source: tuned; "
        "see wa_horizon.",
    )
    loss_scale: float = Field(
        0.25,
        gt=0,
        allow_inf_nan=False,
        description="Fall of the loss that is enough for a merge, nats. Source: half of "
        "wa_diloco's 0.5, reached in mid-corridor.",
    )
    tokens_scale: float = Field(
        5e5,
        gt=0,
        allow_inf_nan=False,
        description="Tokens per island that are enough for a merge, tokens. Source: half of the "
        "published 1e6, reached in mid-corridor.",
    )
    staleness_scale_s: float = Field(
        32.0,
        gt=0,
        allow_inf_nan=False,
        description="Staleness that costs the weight, s. Source: h_max times the default step.",
    )
    overlap_weight: float = Field(
        1.5,
        ge=0,
        allow_inf_nan=False,
        description="Cost of an expected overlap of its scale, no unit. Source: tuned; see "
        "wa_horizon.",
    )
    overlap_scale: float = Field(
        20.0,
        gt=0,
        allow_inf_nan=False,
        description="Expected overlap that costs the weight, requests. Source: as wa_forecast.",
    )
    max_staleness_s: float | None = fairness.max_staleness_field()
    forecast_error: float | None = forecast_error_field()


class StoppingPolicy(Policy):
    """Merge at the first boundary at which waiting is not expected to be cheaper.

    Cost of a merge at a gap, with ``short(v, s) = max(0, 1 - v / s)``::

        mean over learners of loss_weight * short(loss_drop, loss_scale)
        + tokens_weight * short(tokens, tokens_scale)
        + staleness_weight * staleness / staleness_scale_s
        + overlap_weight * expected overlap / overlap_scale

    Merging early wastes a merge, merging late leaves islands stale, and between the two the load
    decides. The expected overlap of a window is the requests in flight at its start plus the
    arrivals forecast in it. Later windows are taken at whole seconds from now and at the last
    boundary; there, the requests in flight are forecast by Little's law from the time in the
    sidecar so far (mean in flight over mean rate, both seen up to now), and tokens and fall of the
    loss grow in proportion to the gap. Network and checkpoint pressure are not forecast and have
    no part; serving pressure is the overlap.

    Later merges reach up to ``h_max``, also past the horizon, where the run ends but training does
    not: the last merge is made when it is cheap, not because it is the last.

    When the level is not known for certain, the value of waiting is averaged over the belief as if
    the level became known one second later (QMDP: Littman, Cassandra and Kaelbling, Learning
    policies for partially observable environments, ICML 1995); it favours waiting a little.

    A subclass forecasts: ``_learn`` takes in one more completed second, ``_forecast`` answers.
    """

    def __init__(self, parameters: BaseModel | None = None) -> None:
        """As any policy; with a ``forecast_error`` it is not deployable."""
        super().__init__(parameters)
        self.deployable = self.parameters.forecast_error is None

    @classmethod
    def check(cls, parameters: StoppingParameters, h_min: int, h_max: int, step_s: float) -> None:
        """Refuse a fairness bound that the corridor can't keep."""
        fairness.check_bound(cls.name, parameters.max_staleness_s, h_min, step_s)

    def begin(self, block: Block) -> None:
        """Start without knowledge of the load."""
        super().begin(block)
        self._foresight = Foresight(block, self.parameters.forecast_error)
        self._seconds = 0
        self._arrived = 0
        self._in_flight_sum = 0
        self._calls = 0

    @abstractmethod
    def _learn(self, count: int) -> None:
        """Take in the arrivals of the next completed second."""

    @abstractmethod
    def _forecast(self) -> LoadForecast:
        """Return the load seen from the end of the last completed second (at least one)."""

    def decide(self, observation: Observation) -> Decision:
        """Merge when the cost now is at most that of waiting; the score is waiting less now.

        At ``h_max`` nothing is left to wait for: it leaves that merge to the corridor.
        """
        self._take_in(observation)
        self._in_flight_sum += observation.in_flight
        self._calls += 1
        if observation.gap == observation.h_max or not self._seconds:
            return Decision(merge=False, score=0.0)
        score = self.advantage(observation)
        if score >= 0:
            return Decision(merge=True, score=score)
        if fairness.starves(observation, self.parameters.max_staleness_s):
            return Decision(merge=True, score=score, reason=fairness.REASON)
        return Decision(merge=False, score=score)

    def advantage(self, observation: Observation) -> float:
        """Return the expected cost of the best later merge less that of one now, no unit.

        The gap must be below ``h_max``, and one second completed.
        """
        load, arrivals = self._load, self._arrivals
        left = observation.h_max - observation.gap
        stage_s = max(1, round(observation.step_s))
        stage_steps = max(1, round(stage_s / observation.step_s))
        ahead = np.minimum(stage_steps * np.arange(1, -(-left // stage_steps) + 1), left)
        now_step = round(observation.now_s / observation.step_s)
        now = np.array([observation.in_flight + load.belief @ arrivals])
        later = np.tile(arrivals + self._latency_s() * load.rates_rps, (len(ahead), 1))
        now = self._foresight.apply(now, np.array([now_step]))
        later = self._foresight.apply(later, now_step + ahead)
        unit = self.parameters.overlap_weight / self.parameters.overlap_scale
        learners = self.learners_cost(observation, np.concatenate([[0], ahead]))
        transition = np.linalg.matrix_power(load.transition, stage_s)
        waiting = continuation(transition, learners[1:, None] + unit * later)
        advantage = float(load.belief @ waiting - (learners[0] + unit * now[0]))
        # the last bits of exp, log and matrix products differ between processors
        return round(advantage, _DIGITS)

    def learners_cost(self, observation: Observation, ahead: np.ndarray) -> np.ndarray:
        """Return the learners' mean cost of a merge ``ahead`` steps from now, same shape."""
        p, grown = self.parameters, 1.0 + ahead[:, None] / observation.gap
        stale_s = observation.staleness_s + ahead[:, None] * observation.step_s
        cost = (
            p.loss_weight * _short(observation.loss_drop * grown, p.loss_scale)
            + p.tokens_weight * _short(observation.tokens * grown, p.tokens_scale)
            + p.staleness_weight * stale_s / p.staleness_scale_s
        )
        return cost.mean(axis=1)

    def _take_in(self, observation: Observation) -> None:
        """Learn from the seconds completed since the last call; forecast anew if there are any."""
        for count in observation.counts_per_s[self._seconds :].tolist():
            self._learn(count)
            self._arrived += count
        if len(observation.counts_per_s) > self._seconds:
            load = self._forecast()
            self._load = load
            self._arrivals = window_arrivals(load.transition, load.rates_rps, observation.merge_s)
        self._seconds = len(observation.counts_per_s)

    def _latency_s(self) -> float:
        """Mean time of a request in the sidecar, by Little's law, s; 0 before the first request."""
        rate_rps = self._arrived / self._seconds
        return self._in_flight_sum / self._calls / rate_rps if rate_rps else 0.0


def _short(value: np.ndarray, scale: float) -> np.ndarray:
    return np.clip(1.0 - value / scale, 0.0, 1.0)
