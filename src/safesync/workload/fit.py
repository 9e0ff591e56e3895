"""From a real trace to an MMPP-2 family, by maximum likelihood.

``python -m safesync.workload.fit TRACE [--format NAME] [--bin-s S | --times]`` prints the config.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln, xlogy

from safesync.workload.families.mmpp2 import Mmpp2
from safesync.workload.importers.reading import FORMATS, TraceFile

# starts of the search: the quiet and the busy rate over the mean, and the stays over the mean stay
_STARTS = [(quiet, busy, stay) for quiet, busy in ((0.05, 3), (0.5, 1.6)) for stay in (0.2, 1, 5)]
# the three further parameters of a second state pay for themselves from here on (Akaike 1974)
_LEAST_GAIN = 3.0
# three weeks of seconds; the search takes minutes for so many
_MOST_BINS = 2_000_000


@dataclass(frozen=True)
class Mmpp2Fit:
    """The likeliest MMPP-2 of a trace, the quieter state first.

    Log-likelihoods are natural; that of the likeliest Poisson process, on the same data, shows
    what the second state adds. ``poisson_rps``: that process's rate, requests/s.
    """

    family: Mmpp2
    log_likelihood: float
    poisson_log_likelihood: float
    poisson_rps: float


def fit_counts(counts: np.ndarray, bin_s: float) -> Mmpp2Fit:
    """Return the MMPP-2 that makes the counts of consecutive bins of ``bin_s`` seconds likeliest.

    ``counts``: whole numbers, shape (n,). The state is taken to change between bins only (a
    Poisson hidden Markov model; Zucchini and MacDonald, Hidden Markov Models for Time Series,
    2009, section 2.3), and a stay lasts bin_s / (probability of leaving) on average. Bins hide
    what is shorter than they are, so stays come out long and the two rates too near each other
    when stays are but a few bins: with stays of 22 and 7.6 bins, by 8 % and 19 %, and the busy
    rate 7 % low (simulated). ``fit_times`` has no such error, but needs stamps that are exact.

    Raises ValueError for fewer than 2 bins or no request.
    """
    counts = np.asarray(counts)
    if counts.size < 2 or counts.sum() == 0:
        raise ValueError(
            f"fit_counts needs at least 2 bins and one request, found {counts.size} "
            f"bin{'s' * (counts.size != 1)} with {int(counts.sum())}"
        )
    seen, place = np.unique(counts, return_inverse=True)

    def log_likelihood(rates: np.ndarray, stays_s: np.ndarray) -> float:
        leave = bin_s / stays_s
        step = np.array([[1 - leave[0], leave[0]], [leave[1], 1 - leave[1]]])
        mean = rates[:, None] * bin_s
        log_mass = xlogy(seen, mean) - mean - gammaln(seen + 1)
        top = log_mass.max(axis=0)
        one_bin = np.exp(log_mass - top)[:, None, :] * step[:, :, None]
        return log_chain(np.take(one_bin, place, axis=2), stays_s) + float(top[place].sum())

    mean = counts.mean()
    poisson = float(np.sum(xlogy(counts, mean) - mean - gammaln(counts + 1)))
    # a stay of one bin would leave a state for certain, and a chain of impossible steps
    stay_s = (1.01 * bin_s, counts.size * bin_s)
    return _best(log_likelihood, mean / bin_s, stay_s, counts.max() / bin_s, poisson)


def fit_times(arrival_s: np.ndarray, span_s: float) -> Mmpp2Fit:
    """Return the MMPP-2 that makes the arrival times in [0, ``span_s``) likeliest.

    Exact: between arrivals the state moves by exp((Q - L) gap), each arrival multiplies by the
    rates L (Fischer and Meier-Hellstern 1993, section 2); ``arrival_s``: float64, sorted, shape
    (n,). Stamps must be exact: rounded ones make bursts of simultaneous requests that the
    likelihood follows.

    Raises ValueError for fewer than 2 requests, or times that are unsorted or outside the span.
    """
    times = np.asarray(arrival_s, dtype=np.float64)
    gaps = np.diff(times, prepend=0.0, append=span_s)
    if times.size < 2 or np.any(gaps < 0):
        raise ValueError(
            f"fit_times needs at least 2 sorted times in [0, {span_s:g}) s, found {times.size}"
        )

    def log_likelihood(rates: np.ndarray, stays_s: np.ndarray) -> float:
        moves, log_scale = _silences(rates, stays_s, gaps)
        moves[:, :, :-1] *= rates[:, None]
        return log_chain(moves, stays_s) + log_scale

    rate = times.size / span_s
    poisson = float(times.size * np.log(rate) - times.size)
    return _best(log_likelihood, rate, (1 / rate, span_s), 100 * rate, poisson)


def log_chain(steps: np.ndarray, stays_s: np.ndarray) -> float:
    """Return log(pi S_1 S_2 ... S_n 1) for ``steps`` of shape (2, 2, n), pi the stationary law.

    The forward algorithm as a tree: neighbours are multiplied in pairs, log2(n) times, each
    product scaled by its largest entry, so that nothing underflows and numpy does the loop.
    """
    log_scale = 0.0
    while (count := steps.shape[2]) > 1:
        even = count - count % 2
        pairs = np.einsum("ijn,jkn->ikn", steps[:, :, :even:2], steps[:, :, 1::2])
        top = pairs.max(axis=(0, 1))
        log_scale += float(np.log(top).sum())
        steps = np.concatenate([pairs / top, steps[:, :, even:]], axis=2)
    return log_scale + float(np.log((stays_s / stays_s.sum()) @ steps[:, :, 0].sum(axis=1)))


def _silences(
    rates: np.ndarray, stays_s: np.ndarray, gaps_s: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return exp((Q - L) gap) of each gap, shape (2, 2, n), up to a factor, and its logarithm."""
    leave = 1 / stays_s
    generator = np.array([[-leave[0], leave[0]], [leave[1], -leave[1]]]) - np.diag(rates)
    middle = generator.trace() / 2
    half = np.sqrt(((generator[0, 0] - generator[1, 1]) / 2) ** 2 + leave[0] * leave[1])
    # exp(A t) = e^(middle t) (cosh(half t) I + sinh(half t) / half (A - middle I)), over e^(half t)
    decay = np.exp(-2 * half * gaps_s)
    slope = (generator - middle * np.eye(2)) / half
    moves = (1 + decay) / 2 * np.eye(2)[:, :, None] + (1 - decay) / 2 * slope[:, :, None]
    # rounding may leave an entry a hair below 0
    return np.maximum(moves, 0.0), float((middle + half) * gaps_s.sum())


def _best(
    log_likelihood: Callable[[np.ndarray, np.ndarray], float],
    rate: float,
    stay_s: tuple[float, float],
    highest_rps: float,
    poisson: float,
) -> Mmpp2Fit:
    """Return the likeliest parameters over several starts; ``stay_s``: shortest and longest."""
    shortest, longest = stay_s
    bounds = [(np.log(1e-6 * rate), np.log(2 * highest_rps))] * 2
    bounds += [(np.log(shortest), np.log(10 * longest))] * 2

    def loss(logs: np.ndarray) -> float:
        values = np.exp(logs)
        return -log_likelihood(values[:2], values[2:])

    typical_s = np.sqrt(shortest * longest)
    found = [
        minimize(
            loss,
            np.clip(
                np.log([quiet * rate, busy * rate, stay * typical_s, stay * typical_s]),
                *np.transpose(bounds),
            ),
            method="L-BFGS-B",
            bounds=bounds,
        )
        for quiet, busy, stay in _STARTS
    ]
    best = min(found, key=lambda one: one.fun)
    values = np.exp(best.x)
    order = np.argsort(values[:2])
    family = Mmpp2(
        rates_rps=tuple(values[:2][order].tolist()),
        mean_sojourn_s=tuple(values[2:][order].tolist()),
    )
    return Mmpp2Fit(family, -float(best.fun), poisson, float(rate))


def _fit_file(path: str, name: str, bin_s: float | None) -> Mmpp2Fit:
    """Return the fit of a trace's counts in bins of ``bin_s``; None: of its exact stamps."""
    if name != "auto" and name not in FORMATS:
        raise ValueError(f"unknown format '{name}'; known: auto, {', '.join(FORMATS)}")
    if bin_s is not None and not 0 < bin_s < math.inf:
        raise ValueError(f"--bin-s must be a number of seconds above 0, found {bin_s:g}")
    file = TraceFile(path, name)
    rows = list(file.rows())
    if not rows:
        raise ValueError(f"{path}: no request to fit")
    times, span_s = np.sort(np.concatenate([some.arrival_s for some in rows])), rows[-1].last_s
    try:
        if bin_s is None:
            return fit_times(times[times < span_s], span_s)
        if span_s > _MOST_BINS * bin_s:
            raise ValueError(
                f"its {span_s:g} s hold more than {_MOST_BINS} bins of {bin_s:g} s; stamps are "
                f"read as {file.format.unit}: if they are, raise --bin-s or give --times"
            )
        bins = int(span_s / bin_s)
        inside = times[times < bins * bin_s]
        return fit_counts(np.bincount((inside / bin_s).astype(np.int64), minlength=bins), bin_s)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def main(arguments: list[str] | None = None) -> None:
    """Print the MMPP-2 of a trace as the lines that a config wants; Poisson where it gains nothing.

    Exits with status 1 and one sentence when the trace can't be fitted.
    """
    parser = argparse.ArgumentParser(prog="python -m safesync.workload.fit")
    parser.add_argument("trace", help="the trace's file")
    parser.add_argument("--format", default="auto", help="its format (auto: told by its header)")
    parser.add_argument("--bin-s", type=float, default=1.0, help="fit counts in bins so long, s")
    parser.add_argument("--times", action="store_true", help="fit exact stamps instead of counts")
    chosen = parser.parse_args(arguments)
    try:
        fit = _fit_file(chosen.trace, chosen.format, None if chosen.times else chosen.bin_s)
    except (ValueError, OSError) as error:
        raise SystemExit(f"{parser.prog}: {' '.join(str(error).split())}") from None
    said = f"# log-likelihood {fit.log_likelihood:.1f}; Poisson {fit.poisson_log_likelihood:.1f}"
    if fit.log_likelihood - fit.poisson_log_likelihood < _LEAST_GAIN:
        print(
            f"{said}: a second state gains less than {_LEAST_GAIN:g}, so Poisson arrivals do\n"
            f"arrivals:\n  family: poisson\n  rate_rps: {fit.poisson_rps:.4g}"
        )
        return
    (quiet_rps, busy_rps), (quiet_s, busy_s) = fit.family.rates_rps, fit.family.mean_sojourn_s
    print(
        f"{said}\n"
        "arrivals:\n  family: mmpp2\n"
        f"  rates_rps: [{quiet_rps:.4g}, {busy_rps:.4g}]\n"
        f"  mean_sojourn_s: [{quiet_s:.4g}, {busy_s:.4g}]"
    )


if __name__ == "__main__":
    main()
