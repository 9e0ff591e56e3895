"""MMPP-2 by maximum likelihood: against a plain forward algorithm, and on data of known truth."""

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.stats import poisson

from safesync.workload.families import Mmpp2, Poisson
from safesync.workload.fit import fit_counts, fit_times, log_chain, main
from safesync.workload.streams import stream

TRUTH = Mmpp2(rates_rps=(0.5, 8.0), mean_sojourn_s=(20.0, 10.0))
SPAN_S = 6_000


@pytest.fixture(scope="module")
def times():
    return TRUTH.simulate(SPAN_S, stream("truth"))


def close(family, rates, sojourns):
    """Relative deviations of a fit from the truth: two rates, two stays."""
    found = [*family.rates_rps, *family.mean_sojourn_s]
    return np.array(found) / [*rates, *sojourns] - 1


def test_chain_is_the_product_of_its_matrices():
    rng = np.random.default_rng(0)
    for count in (1, 2, 3, 4, 7, 64, 101):
        steps = rng.random((count, 2, 2))
        product = np.linalg.multi_dot([np.eye(2), *steps])
        expected = np.log(np.array([0.25, 0.75]) @ product @ np.ones(2))
        found = log_chain(np.moveaxis(steps, 0, 2), np.array([1.0, 3.0]))
        assert found == pytest.approx(expected, abs=1e-10)


def test_chain_does_not_underflow():
    steps = np.full((2, 2, 100_000), 1e-100)
    expected = 100_000 * np.log(1e-100) + 99_999 * np.log(2) + np.log(2)
    assert log_chain(steps, np.array([1.0, 1.0])) == pytest.approx(expected, rel=1e-12)


def test_likelihood_of_counts_is_that_of_the_plain_forward_algorithm():
    counts = np.array([0, 0, 5, 9, 7, 0, 1, 0, 8, 6])
    fit = fit_counts(counts, 2.0)
    (r0, r1), (m0, m1) = fit.family.rates_rps, fit.family.mean_sojourn_s
    step = np.array([[1 - 2 / m0, 2 / m0], [2 / m1, 1 - 2 / m1]])
    state, total = np.array([m0, m1]) / (m0 + m1), 0.0
    for place, count in enumerate(counts):
        state = (state if place == 0 else state @ step) * poisson.pmf(count, [2 * r0, 2 * r1])
        total += np.log(state.sum())
        state /= state.sum()
    assert fit.log_likelihood == pytest.approx(total, abs=1e-6)
    assert fit.poisson_log_likelihood == pytest.approx(poisson.logpmf(counts, 3.6).sum())
    assert fit.log_likelihood > fit.poisson_log_likelihood


def test_likelihood_of_times_is_that_of_matrix_exponentials():
    arrival_s = np.array([3.0, 3.1, 3.15, 3.3, 9.0, 9.05, 9.2, 15.0])
    fit = fit_times(arrival_s, 20.0)
    rates, (m0, m1) = np.array(fit.family.rates_rps), fit.family.mean_sojourn_s
    silent = np.array([[-1 / m0, 1 / m0], [1 / m1, -1 / m1]]) - np.diag(rates)
    state, last = np.array([m0, m1]) / (m0 + m1), 0.0
    for time in arrival_s:
        state, last = state @ expm(silent * (time - last)) * rates, time
    total = np.log((state @ expm(silent * (20 - last))).sum())
    assert fit.log_likelihood == pytest.approx(total, abs=1e-6)
    assert fit.poisson_log_likelihood == pytest.approx(8 * np.log(0.4) - 8)


def test_exact_times_give_the_truth_back(times):
    fit = fit_times(times, SPAN_S)
    # some 200 stays of each kind: 1 / sqrt(200) is 7 % of a stay, 4 sigma 28 %
    off = close(fit.family, TRUTH.rates_rps, TRUTH.mean_sojourn_s)
    assert np.all(np.abs(off) < [0.1, 0.04, 0.28, 0.28])
    assert fit.log_likelihood > fit.poisson_log_likelihood + 1_000


def test_counts_give_the_truth_back_as_far_as_bins_let_them(times):
    bin_s = 0.25
    counts = np.bincount((times / bin_s).astype(int), minlength=int(SPAN_S / bin_s))
    fine = fit_counts(counts, bin_s)
    off = close(fine.family, TRUTH.rates_rps, TRUTH.mean_sojourn_s)
    assert np.all(np.abs(off) < [0.1, 0.04, 0.28, 0.28])
    coarse = fit_counts(counts.reshape(-1, 16).sum(axis=1), 4.0)
    # long bins mix the states: the stays come out longer and the rates nearer each other
    assert np.all(np.array(coarse.family.mean_sojourn_s) > fine.family.mean_sojourn_s)
    assert coarse.family.rates_rps[0] > fine.family.rates_rps[0]
    assert coarse.family.rates_rps[1] < fine.family.rates_rps[1]


def test_a_hidden_chain_in_bins_is_found_exactly():
    """Data of the model itself: the state holds for a whole bin."""
    rng = np.random.default_rng(7)
    leave, rates = np.array([0.05, 0.2]), np.array([1.0, 12.0])
    states, state = [], 0
    for uniform in rng.random(20_000):
        states.append(state)
        state = 1 - state if uniform < leave[state] else state
    fit = fit_counts(rng.poisson(rates[states]), 1.0)
    off = close(fit.family, rates, 1 / leave)
    assert np.all(np.abs(off) < [0.04, 0.03, 0.13, 0.13])  # 4 sigma of some 800 stays: 14 %


def test_poisson_data_gain_nothing_from_a_second_state():
    counts = np.bincount(Poisson(rate_rps=3).simulate(2_000, stream("p")).astype(int))
    fit = fit_counts(counts, 1.0)
    # twice the gain is at most some chi-square of 3 degrees of freedom
    assert -0.01 < fit.log_likelihood - fit.poisson_log_likelihood < 8


def test_the_quiet_state_comes_first():
    counts = np.tile([9, 11, 10, 8, 0, 1, 0], 40)
    quiet, busy = fit_counts(counts, 1.0).family.rates_rps
    assert quiet < 1 < busy


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fit_counts(np.array([3]), 1.0), "at least 2 bins"),
        (lambda: fit_counts(np.zeros(5, dtype=int), 1.0), "5 bins with 0"),
        (lambda: fit_times(np.array([1.0]), 5.0), "at least 2 sorted times"),
        (lambda: fit_times(np.array([2.0, 1.0]), 5.0), "sorted"),
        (lambda: fit_times(np.array([2.0, 6.0]), 5.0), r"in \[0, 5\) s"),
    ],
)
def test_too_little_data_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.parametrize("more", [["--bin-s", "0.5"], ["--times"]])
def test_a_trace_becomes_lines_of_config(tmp_path, capsys, times, more):
    path = tmp_path / "mine.csv"
    path.write_text("arrival_s\n" + "".join(f"{time!r}\n" for time in times[:3_000].tolist()))
    main([str(path), *more])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("# log-likelihood ")
    assert printed[1:3] == ["arrivals:", "  family: mmpp2"]
    rates = [float(word) for word in printed[3].split("[")[1].strip("]").split(",")]
    assert rates[0] < 1 < rates[1]


@pytest.mark.parametrize("more", [[], ["--times"]])
def test_a_trace_that_is_no_better_told_by_two_states_is_poisson(tmp_path, capsys, more):
    path = tmp_path / "mine.csv"
    path.write_text("arrival_s\n" + "".join(f"{i / 2}\n" for i in range(401)))
    main([str(path), *more])
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("# log-likelihood -")
    assert first.endswith(": a second state gains less than 3, so Poisson arrivals do")
    assert lines == ["arrivals:", "  family: poisson", "  rate_rps: 2"]


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        (None, [], "no such file"),
        ("", [], "the file is empty"),
        ("arrival_s\n", [], "mine.csv: .*"),
        ("arrival_s\n1.0\n", [], "mine.csv: fit_counts needs at least 2 bins"),
        ("arrival_s\n1.0\n", ["--times"], "mine.csv: fit_times needs at least 2"),
        ("arrival_s\n0\n1.5\n", [], "mine.csv: .* one request, found 1 bin with 1$"),
        ("arrival_s\n0\n3e9\n", [], "mine.csv: its 3e.09 s hold more than 2000000 bins of 1 s; "),
        ("arrival_s\n0\n1e300\n", [], "stamps are read as seconds: if they are, raise --bin-s"),
        ("arrival_s\n1.0\nlate\n", [], "'arrival_s'"),
        ("when\n1.0\n", [], "no known format"),
        ("arrival_s\n1.0\n", ["--format", "azur"], "unknown format 'azur'; known: auto, "),
        ("arrival_s\n1.0\n", ["--bin-s", "0"], "--bin-s must be a number of seconds above 0"),
        ("arrival_s\n1.0\n", ["--bin-s", "nan"], "found nan"),
        ("arrival_s\n1.0\n", ["--format", "arrivals_parquet"], "mine.csv"),
    ],
)
def test_a_trace_that_cannot_be_fitted_is_one_sentence(tmp_path, text, more, said):
    path = tmp_path / "mine.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit, match=said) as stopped:
        main([str(path), *more])
    # a text as its code: Python prints it on stderr and exits with 1
    assert stopped.value.code.startswith("python -m safesync.workload.fit: ")
    assert "\n" not in stopped.value.code
