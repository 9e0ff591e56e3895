"""What every arrival family shares: its contract, and the exact simulation of an intensity."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict


@dataclass(frozen=True)
class Intensity:
    """A piecewise-constant arrival rate: the ground truth that a family drew.

    ``edges_s``, shape (n + 1,), rises strictly from 0 to the horizon; ``rates_rps``, shape (n,),
    holds the rate, in requests per second, on ``[edges_s[i], edges_s[i + 1])``. An envelope is
    written the same way; its rates are factors, without a unit.
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

    def times(self, other: "Intensity") -> "Intensity":
        """Return the product of two intensities over the same horizon; it is exact."""
        edges = np.union1d(self.edges_s, other.edges_s)
        return Intensity(edges, self.rate(edges[:-1]) * other.rate(edges[:-1]))

    def reached(self, expected: np.ndarray) -> np.ndarray:
        """Return the times [s] at which the integral of the rate reaches ``expected``."""
        integral = np.concatenate([[0.0], np.cumsum(self.rates_rps * np.diff(self.edges_s))])
        return np.interp(expected, integral, self.edges_s)

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


def flat(horizon_s: float, level: float = 1.0) -> Intensity:
    """Return the intensity (or envelope) that is ``level`` over all of [0, ``horizon_s``)."""
    return Intensity(np.array([0.0, horizon_s]), np.array([level]))


def alternating(
    horizon_s: float, first: int, stays_s: Iterator[float], rates_rps: tuple[float, float]
) -> Intensity:
    """Return the intensity of two states that take turns, from state ``first`` (0 or 1).

    ``stays_s`` yields the length [s] of each stay in turn; the last is cut at the horizon.
    """
    edges = [0.0]
    while edges[-1] < horizon_s:
        edges.append(edges[-1] + next(stays_s))
    edges[-1] = horizon_s
    states = (first + np.arange(len(edges) - 1)) % 2
    return Intensity(np.array(edges), np.array(rates_rps)[states])


@dataclass(frozen=True)
class Drawn:
    """One trace of a family.

    ``arrival_s``: float64 times [s], sorted, in [0, horizon); it may be empty. ``expected``: how
    many requests were expected. ``intensity``: the rate behind them; None where the family has no
    such rate (a renewal process).
    """

    arrival_s: np.ndarray
    expected: float
    intensity: Intensity | None


class ArrivalFamily(BaseModel):
    """Base of the arrival families: parameters as fields, each with its unit and source."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: the fields to raise when a trace comes out empty, for the error message
    rate_fields: ClassVar[tuple[str, ...]]

    @abstractmethod
    def draw(
        self, horizon_s: float, rng: np.random.Generator, envelope: Intensity | None = None
    ) -> Drawn:
        """Draw one trace over [0, ``horizon_s``).

        ``envelope``, over the same horizon, multiplies the family's own rate; None: 1 throughout.
        """

    @property
    def files(self) -> tuple[str, ...]:
        """The files that arrivals are read from: none."""
        return ()

    def simulate(self, horizon_s: float, rng: np.random.Generator) -> np.ndarray:
        """Return float64 arrival times [s], sorted, in [0, ``horizon_s``); it may be empty."""
        return self.draw(horizon_s, rng).arrival_s


class ModulatedPoisson(ArrivalFamily):
    """Base of the families that are Poisson processes once their rate is known."""

    @abstractmethod
    def intensity(self, horizon_s: float, rng: np.random.Generator) -> Intensity:
        """Draw the arrival rate over [0, ``horizon_s``), the first thing taken from ``rng``."""

    def draw(
        self, horizon_s: float, rng: np.random.Generator, envelope: Intensity | None = None
    ) -> Drawn:
        """Draw the rate, then the arrivals; an envelope leaves the length of bursts as it is."""
        intensity = self.intensity(horizon_s, rng)
        if envelope is not None:
            intensity = intensity.times(envelope)
        return Drawn(intensity.arrivals(rng), intensity.expected(), intensity)
