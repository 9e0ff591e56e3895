"""What every arrival family shares: its contract, and the exact simulation of an intensity."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict


@dataclass(frozen=True)
class Intensity:
    """A piecewise-constant arrival rate: the ground truth that a family drew.

    ``edges_s``, shape (n + 1,), rises strictly from 0 to the horizon; ``rates_rps``, shape (n,),
    holds the rate, in requests per second, on ``[edges_s[i], edges_s[i + 1])``.
    """

    edges_s: np.ndarray
    rates_rps: np.ndarray

    def rate(self, t_s: np.ndarray | float) -> np.ndarray:
        """Return the rate [requests/s] at ``t_s``; times must lie in [0, horizon)."""
        times = np.asarray(t_s, dtype=np.float64)
        if np.any((times < self.edges_s[0]) | (times >= self.edges_s[-1])):
            raise ValueError(f"rate: times must lie in [0, {self.edges_s[-1]:g}) s")
        return self.rates_rps[np.searchsorted(self.edges_s, times, side="right") - 1]

    def expected(self) -> float:
        """Return the expected number of arrivals up to the horizon."""
        return float(np.sum(self.rates_rps * np.diff(self.edges_s)))

    def arrivals(self, rng: np.random.Generator) -> np.ndarray:
        """Return the sorted arrival times [s] of one Poisson process of this intensity.

        Exact: on each piece the count is Poisson and, given the count, the times are independent
        and uniform (Kingman, Poisson Processes, 1993, section 2.4).
        """
        lengths = np.diff(self.edges_s)
        counts = rng.poisson(self.rates_rps * lengths)
        piece = np.repeat(np.arange(len(lengths)), counts)
        times = self.edges_s[piece] + lengths[piece] * rng.random(piece.size)
        # rounding may lift a time onto the end of its piece, which belongs to the next one
        times = np.minimum(times, np.nextafter(self.edges_s[piece + 1], 0.0))
        return np.sort(times)


class ArrivalFamily(BaseModel):
    """Base of the arrival families: parameters as fields, each with its unit and source."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: the fields to raise when a trace comes out empty, for the error message
    rate_fields: ClassVar[tuple[str, ...]]

    @abstractmethod
    def intensity(self, horizon_s: float, rng: np.random.Generator) -> Intensity:
        """Draw the arrival rate over [0, ``horizon_s``), the first thing taken from ``rng``."""

    def simulate(self, horizon_s: float, rng: np.random.Generator) -> np.ndarray:
        """Return float64 arrival times [s], sorted, in [0, ``horizon_s``); it may be empty.

        The path behind them is what ``intensity`` draws from a generator in the same state.
        """
        return self.intensity(horizon_s, rng).arrivals(rng)
