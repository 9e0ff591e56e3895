"""Poisson, Pareto on/off, gamma renewal and the diurnal envelope: by hand, and by their laws."""

import numpy as np
import pytest
from scipy import stats

from safesync.workload.families import (
    Diurnal,
    GammaRenewal,
    Intensity,
    Mmpp2,
    ParetoOnOff,
    Periodic,
    Poisson,
)
from safesync.workload.families.base import alternating
from safesync.workload.families.pareto import pareto, residual_pareto
from safesync.workload.streams import stream


def seeds(count):
    return [stream("arrivals", "test", seed) for seed in range(count)]


def test_alternating_by_hand():
    path = alternating(10.0, 1, iter([2.0, 3.0, 9.0]), (0.5, 4.0))
    assert path.edges_s.tolist() == [0, 2, 5, 10]
    assert path.rates_rps.tolist() == [4.0, 0.5, 4.0]


def test_poisson_has_its_rate_and_nothing_else():
    times = Poisson(rate_rps=3).simulate(10_000, stream("poisson"))
    assert stats.kstest(np.diff(times), stats.expon(scale=1 / 3).cdf).pvalue > 0.001
    assert abs(times.size - 30_000) < 4 * np.sqrt(30_000)
    assert Poisson(rate_rps=3).intensity(5, None).edges_s.tolist() == [0, 5]


def test_pareto_quantiles_by_hand():
    # mean 6, shape 1.5: the shortest stay is 2, and P(stay > 8) = (2 / 8)^1.5 = 1 / 8
    assert pareto(6, 1.5, 0.0) == pytest.approx(2)
    assert pareto(6, 1.5, 7 / 8) == pytest.approx(8)
    # what is left is uniform up to 2 (with mass 1/3), then 1 - (2 / x)^0.5 / 1.5
    assert residual_pareto(6, 1.5, 1 / 6) == pytest.approx(1)
    assert residual_pareto(6, 1.5, 1 / 3) == pytest.approx(2)
    assert residual_pareto(6, 1.5, 2 / 3) == pytest.approx(8)


def test_pareto_stays_have_their_law():
    path = ParetoOnOff(mean_on_s=6, on_shape=1.5, mean_off_s=12, off_shape=3.0).intensity(
        300_000, stream("stays")
    )
    lengths, rates = np.diff(path.edges_s)[1:-1], path.rates_rps[1:-1]
    for own, shape, shortest in ((lengths[rates > 0], 1.5, 2), (lengths[rates == 0], 3.0, 8)):
        assert own.min() >= shortest
        assert stats.kstest(own, stats.pareto(shape, scale=shortest).cdf).pvalue > 0.001


def test_pareto_starts_in_its_stationary_law_and_stays_in_it():
    family = ParetoOnOff()
    share = family.mean_on_s / (family.mean_on_s + family.mean_off_s)
    paths = [family.intensity(90, rng) for rng in seeds(4_000)]
    tolerance = 4 * np.sqrt(share * (1 - share) / len(paths))
    for t_s in (0.0, 2.0, 15.0, 89.0):
        on = np.mean([path.rate(t_s) == family.on_rps for path in paths])
        assert abs(on - share) < tolerance


@pytest.mark.parametrize("cv", [0.5, 1.0, 2.1])
def test_gamma_gaps_have_their_mean_and_cv(cv):
    family = GammaRenewal(rate_rps=2.0, cv=cv)
    times = family.simulate(50_000, stream("gaps"))
    gaps = np.diff(times)
    shape = 1 / cv**2
    assert stats.kstest(gaps, stats.gamma(shape, scale=0.5 / shape).cdf).pvalue > 0.001
    # a renewal process has independent gaps
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 4 / np.sqrt(gaps.size)


def test_gamma_is_stationary_from_the_first_second():
    family = GammaRenewal(rate_rps=2.0, cv=2.5)
    counts = np.zeros(6)
    runs = 6_000
    for rng in seeds(runs):
        counts += np.bincount(family.simulate(6, rng).astype(int), minlength=6)
    # the variance of a second's count is measured: gaps of cv 2.5 make it several times Poisson's
    for count in counts:
        assert abs(count / runs - 2.0) < 4 * np.sqrt(2.0 * 2.5**2 / runs)
    # and the first arrival is that of the equilibrium law: P(none up to t), mean of survival
    first = [times[0] for rng in seeds(3_000) if (times := family.simulate(60, rng)).size]
    gap = stats.gamma(1 / 2.5**2, scale=0.5 * 2.5**2)
    grid = np.linspace(0, 60, 60_001)
    law = np.concatenate([[0], np.cumsum(2.0 * gap.sf(grid[:-1] + 0.0005) * 0.001)])
    assert stats.kstest(first, lambda x: np.interp(x, grid, law)).pvalue > 0.001


def test_gamma_has_no_rate_path():
    drawn = GammaRenewal().draw(20, stream("g"))
    assert drawn.intensity is None
    assert drawn.expected == pytest.approx(2.57 * 20)


@pytest.mark.parametrize(
    ("start_s", "edges", "levels"),
    [
        (0.0, [0, 10, 20, 30, 40, 45], [1, 2, 0, 1, 1]),
        (5.0, [0, 5, 15, 25, 35, 45], [1, 2, 0, 1, 1]),
        (35.0, [0, 5, 15, 25, 35, 45], [1, 1, 2, 0, 1]),
    ],
)
def test_envelope_by_hand(start_s, edges, levels):
    family = Diurnal(period_s=40, profile=(3, 6, 0, 3), start_s=start_s)  # mean 3
    path = family.envelope(45, None)
    np.testing.assert_allclose(path.edges_s, edges)
    assert path.rates_rps.tolist() == levels


def test_envelope_multiplies_a_rate_and_leaves_bursts_as_long_as_they_are():
    inner = Periodic(quiet_rps=1, busy_rps=4, period_s=30, busy_s=8)
    family = Diurnal(inner=inner, period_s=40, profile=(3, 6, 0, 3))
    rng = stream("d")
    envelope = family.envelope(100, rng)
    own = inner.intensity(100, rng)
    drawn = family.draw(100, stream("d"))
    times = np.linspace(0, 99.9, 1_000)
    np.testing.assert_allclose(drawn.intensity.rate(times), own.rate(times) * envelope.rate(times))
    assert drawn.expected == pytest.approx(drawn.intensity.expected())
    assert not np.any(envelope.rate(drawn.arrival_s) == 0)


def test_envelope_keeps_the_mean_rate_of_whole_periods():
    for inner, variance in ((Poisson(rate_rps=5), 1.0), (GammaRenewal(rate_rps=5, cv=2), 4.0)):
        times = Diurnal(inner=inner, period_s=100, profile=(1, 2, 3)).simulate(30_000, stream("m"))
        assert abs(times.size - 150_000) < 4 * np.sqrt(150_000 * variance)


def test_envelope_starts_anywhere_in_the_period_over_seeds():
    family = Diurnal(period_s=100, profile=(0, 1))
    switches = []
    for rng in seeds(1_000):
        path = family.envelope(200, rng)
        switches.append(path.edges_s[np.flatnonzero(np.diff(path.rates_rps) > 0)[0] + 1] % 100)
    assert stats.kstest(np.array(switches) / 100, "uniform").pvalue > 0.001


def test_renewal_under_an_envelope_keeps_its_cv_on_the_envelopes_own_clock():
    """The time change: seen through the integral of the profile, gaps are gamma again."""
    family = Diurnal(
        inner=GammaRenewal(rate_rps=3, cv=2), period_s=50, profile=(1, 0, 5, 2), start_s=0
    )
    times = family.simulate(20_000, stream("clock"))
    envelope = family.envelope(20_000, None)
    assert not np.any(envelope.rate(times) == 0)
    integral = np.concatenate([[0], np.cumsum(envelope.rates_rps * np.diff(envelope.edges_s))])
    gaps = np.diff(np.interp(times, envelope.edges_s, integral))
    assert stats.kstest(gaps, stats.gamma(0.25, scale=4 / 3).cdf).pvalue > 0.001


def test_product_of_intensities_by_hand():
    one = Intensity(np.array([0.0, 4.0, 10.0]), np.array([2.0, 3.0]))
    other = Intensity(np.array([0.0, 6.0, 10.0]), np.array([1.0, 0.5]))
    product = one.times(other)
    assert product.edges_s.tolist() == [0, 4, 6, 10]
    assert product.rates_rps.tolist() == [2, 3, 1.5]
    assert one.reached(np.array([0, 4, 8, 11, 26])).tolist() == [0, 2, 4, 5, 10]


def test_an_envelope_can_hold_every_family_but_itself():
    for name in ("poisson", "periodic", "mmpp2", "pareto_onoff", "gamma"):
        family = Diurnal.model_validate({"inner": {"family": name}, "period_s": 60})
        times = family.simulate(400, stream("any"))
        assert np.all(np.diff(times) >= 0)
        assert times[0] >= 0
        assert times[-1] < 400
    with pytest.raises(ValueError, match="inner"):
        Diurnal.model_validate({"inner": {"family": "diurnal"}})


def test_default_profile_is_four_times_its_trough_at_its_peak():
    profile = np.array(Diurnal().profile)
    assert profile.size == 24
    assert profile.mean() == pytest.approx(1, abs=1e-3)
    assert profile.max() / profile.min() == pytest.approx(1.595 / 0.405, abs=0.01)


def test_envelope_on_mmpp2_changes_the_rate_of_bursts_only():
    inner = Mmpp2()
    family = Diurnal(inner=inner, period_s=1_000, profile=(1, 3), start_s=0)
    rng = stream("b")
    own = inner.intensity(5_000, rng)
    drawn = family.draw(5_000, stream("b"))
    switches = np.flatnonzero(np.diff(own.rates_rps)) + 1
    assert np.isin(own.edges_s[switches], drawn.intensity.edges_s).all()
