"""wa_mmpp: a Bayesian filter of quiet and busy spells, and the best moment by its forecast."""

from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from safesync.policies.base import Block
from safesync.policies.stopping import LoadForecast, StoppingParameters, StoppingPolicy


class Parameters(StoppingParameters):
    """Costs, and the prior of the two states."""

    staleness_weight: float = Field(
        0.75,
        ge=0,
        allow_inf_nan=False,
        description="Cost of merging at a staleness of its scale, no unit. Source: tuned; see the "
        "policy.",
    )
    quiet_factor: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="Prior rate of the quiet state over the mean rate so far, no unit. Source: a "
        "starting value; see the policy.",
    )
    busy_factor: float = Field(
        2.5,
        gt=1,
        allow_inf_nan=False,
        description="Prior rate of the busy state over the mean rate so far, no unit. Source: a "
        "starting value; see the policy.",
    )
    quiet_s: float = Field(
        20.0,
        ge=1,
        allow_inf_nan=False,
        description="Prior mean length of a quiet spell, s. Source: 21.8 in the MMPP-2 fit to "
        "AzureLLMInferenceTrace_code 2023.",
    )
    busy_s: float = Field(
        8.0,
        ge=1,
        allow_inf_nan=False,
        description="Prior mean length of a busy spell, s. Source: 7.6 in the same fit.",
    )
    prior_s: float = Field(
        10.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds in each state that the prior rates count as, s. Source: a starting "
        "value; see the policy.",
    )
    prior_spells: float = Field(
        0.5,
        gt=0,
        allow_inf_nan=False,
        description="Spells of each state that the prior lengths count as, no unit. Source: a "
        "starting value; see the policy.",
    )

    phases: int = Field(
        3,
        ge=1,
        le=10,
        description="Phases of a spell, no unit: 1 makes its length exponential (memoryless), more "
        "make it Erlang, ever closer to a fixed length. Source: see the policy.",
    )


class WaMmpp(StoppingPolicy):
    """Merge when no later moment promises to meet fewer requests, by a filter of quiet and busy.

    Optimal stopping (see ``StoppingPolicy``) over a filtered two-state Poisson process.

    Counts per second are Poisson with a quiet or a busy rate; spells of the two follow each other,
    each of ``phases`` phases in a row (Erlang), so that a spell that has lasted is due to end. The
    forward filter keeps the probability of each phase (Rabiner, A tutorial on hidden Markov
    models, Proceedings of the IEEE 77, 1989, section III.A). Rates and mean spells are estimated on
    the way by an online EM in the manner of Cappé (Online EM algorithm for hidden Markov models,
    JCGS 20, 2011), simplified: filtered, not smoothed, expectations of occupancy, counts and
    switches add up, with conjugate priors as seconds and spells already seen. Source of the traffic
    model: Fischer and Meier-Hellstern, The Markov-modulated Poisson process (MMPP) cookbook,
    Performance Evaluation 18 (1993).

    Tuned as wa_horizon, on the same simulated tune seeds and loads: ``staleness_weight`` (0.25 to
    1), ``overlap_weight`` (0.75 to 3), ``phases`` (1 to 6), ``prior_spells`` (0.25 to 2),
    ``prior_s`` (3 to 30) and ``busy_factor`` (2 and 2.5). On 40 further seeds (1012 to 1051) the
    defaults reached 0.62, 0.62, 0.76 and 0.89 of the overlap of uniform placement, wa_forecast
    0.64, 0.71, 0.69 and 0.93 (standard errors 0.02 to 0.04): better on three loads of the four, and
    worse on the slow MMPP-2, whose spells are longer than the prior says.
    """

    name: ClassVar[str] = "wa_mmpp"
    Parameters: ClassVar[type[BaseModel]] = Parameters

    def begin(self, block: Block) -> None:
        """Start from the prior."""
        super().begin(block)
        p = self.parameters
        self._mean_spells_s = np.array([p.quiet_s, p.busy_s])
        self._belief = np.repeat(self._mean_spells_s / self._mean_spells_s.sum(), p.phases)
        self._belief /= p.phases
        self._occupied_s = np.zeros(2)
        self._counts = np.zeros(2)
        self._switches = np.zeros(2)

    def _learn(self, count: int) -> None:
        phases = self.parameters.phases
        joint = filtered(self._belief, self._transition(), self._rates_rps(), count)
        self._belief = joint.sum(axis=0)
        busy = self._belief[phases:].sum()
        occupied = np.array([1.0 - busy, busy])
        self._occupied_s += occupied
        self._counts += count * occupied
        self._switches += joint[phases - 1, phases], joint[-1, 0]

    def _forecast(self) -> LoadForecast:
        transition = self._transition()
        # rates belong to the second spent in a phase; the one that follows a phase is a move later
        return LoadForecast(self._belief, transition, transition @ self._rates_rps())

    def _rates_rps(self) -> np.ndarray:
        p, seen_s = self.parameters, self._occupied_s.sum()
        # one request in the prior's seconds: a silent start must not rule out requests
        mean = (self._counts.sum() + 1.0) / (seen_s + p.prior_s)
        prior = mean * np.array([p.quiet_factor, p.busy_factor])
        rates = (self._counts + p.prior_s * prior) / (self._occupied_s + p.prior_s)
        return np.repeat(np.sort(rates), p.phases)

    def _transition(self) -> np.ndarray:
        p = self.parameters
        spells_s = (self._occupied_s + p.prior_spells * self._mean_spells_s) / (
            self._switches + p.prior_spells
        )
        return spell_chain(spells_s, p.phases)


def spell_chain(spells_s: np.ndarray, phases: int) -> np.ndarray:
    """Return the chain of quiet and busy spells in one-second moves: shape (2 phases, 2 phases).

    spells_s: mean lengths, shape (2,). Each phase is left with the same probability per second, at
    most 1; after the last one of a kind comes the first of the other.
    """
    leave = np.repeat(np.minimum(1.0, phases / spells_s), phases)
    return np.diag(1.0 - leave) + np.roll(np.diag(leave), 1, axis=1)


def filtered(
    belief: np.ndarray, transition: np.ndarray, rates_rps: np.ndarray, count: int
) -> np.ndarray:
    """Return P(state before, state in this second | all counts up to ``count``), shape (n, n).

    belief: shape (n,), before this second; rates_rps: shape (n,), positive.
    """
    log_likelihood = count * np.log(rates_rps) - rates_rps
    likelihood = np.exp(log_likelihood - log_likelihood.max())
    joint = belief[:, None] * transition * likelihood
    return joint / joint.sum()


POLICY = WaMmpp
