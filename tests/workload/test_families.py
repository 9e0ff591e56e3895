"""Arrival families: their law over many seeds, and what configs they take."""

import itertools
import re

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from safesync.workload.families import FAMILIES, Family, Intensity, Mmpp2, Periodic
from safesync.workload.source import SOURCES
from safesync.workload.streams import stream


class Phase:
    """A generator that draws one known uniform number."""

    def __init__(self, uniform):
        self.uniform = uniform

    def random(self):
        return self.uniform


def paths(family, horizon_s, seeds):
    return [family.intensity(horizon_s, stream("arrivals", "test", seed)) for seed in seeds]


@pytest.mark.parametrize(
    ("uniform", "edges", "rates"),
    [
        (0.5, [0, 15, 23, 45, 50], [1, 4, 1, 4]),  # phase 15
        (0.9, [0, 5, 27, 35, 50], [4, 1, 4, 1]),  # phase 27: the burst before it ends at 5
        (0.0, [0, 8, 30, 38, 50], [4, 1, 4, 1]),
    ],
)
def test_periodic_bursts_by_hand(uniform, edges, rates):
    path = Periodic(quiet_rps=1, busy_rps=4, period_s=30, busy_s=8).intensity(50, Phase(uniform))
    np.testing.assert_allclose(path.edges_s, edges)
    assert path.rates_rps.tolist() == rates


def test_periodic_phase_is_uniform_over_seeds():
    family = Periodic(quiet_rps=0, busy_rps=1, period_s=30, busy_s=8)
    phases = []
    for path in paths(family, 60, range(1_000)):
        start = path.edges_s[np.flatnonzero(np.diff(path.rates_rps) > 0)[0] + 1]
        phases.append(start % 30 / 30)
    assert stats.kstest(phases, "uniform").pvalue > 0.001
    # neighbouring seeds must not be related either
    assert abs(stats.spearmanr(phases[:-1], phases[1:]).statistic) < 4 / np.sqrt(1_000)


def test_periodic_rates_over_many_seeds():
    family = Periodic()
    busy = quiet = busy_time = quiet_time = 0.0
    for seed in range(400):
        rng = stream("arrivals", "test", seed)
        path = family.intensity(100, rng)
        rates = path.rate(path.arrivals(rng))
        busy += np.count_nonzero(rates == 4)
        quiet += np.count_nonzero(rates == 1)
        lengths = np.diff(path.edges_s)
        busy_time += lengths[path.rates_rps == 4].sum()
        quiet_time += lengths[path.rates_rps == 1].sum()
    assert abs(busy_time / (busy_time + quiet_time) - 8 / 30) < 0.005
    assert abs(busy - 4 * busy_time) < 4 * np.sqrt(4 * busy_time)
    assert abs(quiet - quiet_time) < 4 * np.sqrt(quiet_time)


def test_equal_rates_make_a_poisson_process():
    times = Periodic(quiet_rps=2, busy_rps=2).simulate(20_000, stream("steady"))
    assert stats.kstest(np.diff(times), stats.expon(scale=0.5).cdf).pvalue > 0.001
    counts = np.bincount(times.astype(int), minlength=20_000)
    assert abs(counts.var(ddof=1) / counts.mean() - 1) < 4 * np.sqrt(2 / 20_000)


def test_mmpp2_starts_in_its_stationary_law_and_stays_in_it():
    share = 7.6 / (21.8 + 7.6)
    started = paths(Mmpp2(), 60, range(2_000))
    tolerance = 4 * np.sqrt(share * (1 - share) / len(started))
    for t_s in (0.0, 5.0, 59.0):
        busy = np.mean([path.rate(t_s) == 9.88 for path in started])
        assert abs(busy - share) < tolerance


def test_mmpp2_sojourns_are_exponential_with_their_means():
    path = Mmpp2().intensity(200_000, stream("sojourns"))
    assert np.all(np.diff(path.rates_rps) != 0)  # the states alternate
    lengths = np.diff(path.edges_s)[1:-1]  # the first and last are cut by the horizon
    for rate, mean in ((0.011, 21.8), (9.88, 7.6)):
        own = lengths[path.rates_rps[1:-1] == rate]
        assert stats.kstest(own, stats.expon(scale=mean).cdf).pvalue > 0.001


@pytest.mark.parametrize("window_s", [1, 10, 60])
def test_mmpp2_dispersion_is_the_closed_form(window_s):
    """Index of dispersion of a stationary MMPP-2, Fischer and Meier-Hellstern 1993."""
    family = Mmpp2()
    horizon = 600_000
    times = family.simulate(horizon, stream("dispersion"))
    counts = np.bincount((times // window_s).astype(int), minlength=horizon // window_s)
    (l1, l2), (m1, m2) = family.rates_rps, family.mean_sojourn_s
    r1, r2 = 1 / m1, 1 / m2
    decay = (r1 + r2) * window_s
    expected = 1 + 2 * (l1 - l2) ** 2 * r1 * r2 / ((r1 + r2) ** 2 * (l1 * r2 + l2 * r1)) * (
        1 - (1 - np.exp(-decay)) / decay
    )
    assert counts.var() / counts.mean() == pytest.approx(expected, rel=0.05)
    assert counts.mean() / window_s == pytest.approx((l1 * m1 + l2 * m2) / (m1 + m2), rel=0.03)


@pytest.mark.parametrize("family", [Periodic(), Mmpp2()])
def test_simulate_follows_the_path_that_the_same_generator_draws(family):
    rng = stream("same")
    path = family.intensity(300, rng)
    np.testing.assert_array_equal(path.arrivals(rng), family.simulate(300, stream("same")))
    assert isinstance(path, Intensity)
    assert path.edges_s[0] == 0
    assert path.edges_s[-1] == 300
    assert np.all(np.diff(path.edges_s) > 0)


def test_union_chooses_by_name():
    family = TypeAdapter(Family)
    assert family.validate_python({"family": "periodic", "busy_rps": 6}) == Periodic(busy_rps=6)
    assert family.validate_python({"family": "mmpp2"}) == Mmpp2()


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"family": "uniform"}, "family"),
        ({"family": "poisson", "rate_rps": 0}, "rate_rps"),
        ({"family": "pareto_onoff", "on_shape": 1.0}, "on_shape"),
        ({"family": "pareto_onoff", "mean_off_s": 0}, "mean_off_s"),
        ({"family": "gamma", "cv": 0}, "cv"),
        ({"family": "diurnal", "profile": [0, 0]}, "profile"),
        ({"family": "diurnal", "profile": [1, -1]}, "profile"),
        ({"family": "diurnal", "period_s": 60, "start_s": 60}, "start_s"),
        ({"family": "diurnal", "inner": {"family": "trace", "path": "x"}}, "inner"),
        ({"family": "periodic", "busy": 3}, "busy"),
        ({"family": "periodic", "busy_s": 30.0}, "period_s"),
        ({"family": "periodic", "busy_rps": 0.5}, "quiet_rps"),
        ({"family": "periodic", "quiet_rps": -1}, "quiet_rps"),
        ({"family": "periodic", "period_s": float("inf")}, "period_s"),
        ({"family": "mmpp2", "rates_rps": [0, 0]}, "rates_rps"),
        ({"family": "mmpp2", "mean_sojourn_s": [0, 1]}, "mean_sojourn_s"),
    ],
)
def test_bad_config_names_the_field(config, field):
    with pytest.raises(ValidationError, match=field):
        TypeAdapter(Family).validate_python(config)


@pytest.mark.parametrize(
    ("family", "name"),
    [(f, n) for f, n in itertools.chain(*([(f, n) for n in f.model_fields] for f in SOURCES))],
)
def test_every_field_tells_unit_and_source(family, name):
    if name != "family":
        description = family.model_fields[name].description
        assert "Source:" in description
        assert re.search(r", (requests/s|s|tokens|no unit)\b", description)


def test_rate_fields_exist():
    for family in FAMILIES:
        assert set(family.rate_fields) <= set(family.model_fields)
