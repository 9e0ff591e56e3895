"""Speed of the placement room, with ratios measured in the same run.

Run with `PYTHONPATH=src python benchmarks/placement.py [--day] [--highs-limit SECONDS]`. Each line
gives a figure, the limit set for it, and whether it holds; the exit status is 1 when
one does not. `--day` adds the day-long horizon (some 30 s, 0.5 GB).
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable

import numpy as np
from scipy import sparse
from scipy.optimize import LinearConstraint, milp

from safesync.placement import Corridor

# 4,800 grid steps; 8 merges of 64 steps leave S = 4,288 inner steps.
PAPER = Corridor(128, 512, 0.125, 8.0, 600.0)
DAY = Corridor(128, 512, 0.125, 8.0, 86_400.0)


def best_of(repeats: int, call: Callable[[], object]) -> float:
    """Shortest wall time of `call` in seconds."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def bursty_cost(corridor: Corridor) -> np.ndarray:
    """About 70 requests in a burst of 30 s in every 120 s, 20 outside it, with noise."""
    t = np.arange(corridor.n_starts) * corridor.step_s
    rate = np.where(t % 120 < 30, 70.0, 20.0)
    return np.random.default_rng(0).poisson(rate).astype(np.int64)


def rejection_rate(
    corridor: Corridor, n: int, rng: np.random.Generator, seconds: float
) -> tuple[float, float]:
    """Feasible schedules per second, and the share kept, of independent gaps that are filtered."""
    kept, drawn, elapsed, begin = 0, 0, 0.0, time.perf_counter()
    first, last = corridor.grid.final_starts()
    while elapsed < seconds:
        gaps = rng.integers(corridor.h_min, corridor.h_max + 1, (100_000, n))
        end = gaps.sum(axis=1) + (n - 1) * corridor.grid.pause
        kept += int(((end >= first) & (end <= last)).sum())
        drawn += len(gaps)
        elapsed = time.perf_counter() - begin
    return kept / elapsed, kept / drawn


def highs(corridor: Corridor, n: int, cost: np.ndarray, limit_s: float) -> tuple[float, bool, int]:
    """Seconds, whether proved optimal, and the value of the time-indexed programme in HiGHS."""
    grid = corridor.grid
    spans = [np.arange(low, high + 1) for low, high in (grid.starts(n, k + 1) for k in range(n))]
    one = sparse.block_diag([np.ones((1, len(s))) for s in spans], format="csr")
    when = sparse.block_diag([s[None, :].astype(float) for s in spans], format="csr")
    gaps = when[1:] - when[:-1]
    begin = time.perf_counter()
    solved = milp(
        np.concatenate([cost[s] for s in spans]),
        integrality=np.ones(sum(map(len, spans))),
        bounds=(0, 1),
        constraints=[
            LinearConstraint(one, 1, 1),
            LinearConstraint(gaps, grid.h_min + grid.pause, grid.h_max + grid.pause),
        ],
        options={"time_limit": limit_s},
    )
    took = time.perf_counter() - begin
    return took, solved.status == 0, round(solved.fun) if solved.fun is not None else -1


class Lines:
    """Prints one line per figure and remembers whether every limit held."""

    def __init__(self) -> None:
        self.good = True

    def add(self, what: str, figure: float, unit: str, limit: float, at_least: bool) -> None:
        holds = figure >= limit if at_least else figure <= limit
        self.good &= holds
        sign = ">=" if at_least else "<="
        print(f"{what:<58} {figure:>12,.4g} {unit:<12} {sign} {limit:g}: {_word(holds)}")

    @staticmethod
    def note(what: str, figure: float, unit: str) -> None:
        print(f"{what:<58} {figure:>12,.4g} {unit}")


def _word(holds: bool) -> str:
    return "holds" if holds else "FAILS"


def sampling(lines: Lines) -> None:
    rng = np.random.default_rng(1)
    # Rejection is quick where most independent gaps happen to fit, and useless near the edges.
    for n in (8, 12, 20):
        PAPER.sample(n, 1, rng)  # the tables are built once and kept
        rate = 500_000 / best_of(3, lambda n=n: PAPER.sample(n, 500_000, rng)) / 1e6
        if n == 8:
            lines.add(f"sample, 600 s, N={n}", rate, "M/s", 1.0, True)
        else:
            lines.note(f"sample, 600 s, N={n}", rate, "M/s")
        rejection, share = rejection_rate(PAPER, n, rng, 2.0)
        lines.note(f"  rejection sampler, vectorised, keeps {share:.2g}", rejection / 1e6, "M/s")
        if rejection:
            lines.note("  ratio", rate * 1e6 / rejection, "x")


def optimum(lines: Lines, highs_limit_s: float) -> None:
    cost = bursty_cost(PAPER)
    took = best_of(5, lambda: PAPER.optimum(8, cost))
    lines.add("optimum, 600 s, N=8", took * 1e3, "ms", 5.0, False)
    value = int(PAPER.total_cost(PAPER.optimum(8, cost), cost))
    solver_s, proved, other = highs(PAPER, 8, cost, highs_limit_s)
    lines.note(f"  HiGHS, {'optimal' if proved else 'stopped at its limit'}", solver_s, "s")
    lines.note("  ratio" if proved else "  ratio, at least", solver_s / took, "x")
    if (proved and other != value) or 0 <= other < value:
        lines.good = False
        print(f"  HiGHS found {other}, optimum {value}: FAILS")


def null(lines: Lines) -> None:
    cost = bursty_cost(PAPER)
    distribution = PAPER.null(14, cost)
    took = best_of(3, lambda: PAPER.null(14, cost))
    totals = int(distribution.values[-1])
    lines.add(f"null, 600 s, N=14, up to {totals} overlapped", took, "s", 1.0, False)
    lines.note("  moments alone", best_of(5, lambda: PAPER.moments(14, cost)) * 1e3, "ms")


def day(lines: Lines) -> None:
    rng, cost = np.random.default_rng(2), bursty_cost(DAY)
    lines.note("count, day, N=1800", best_of(1, lambda: DAY.count(1800)), "s")
    lines.note(
        "sample, day, N=1800: tables and one", best_of(1, lambda: DAY.sample(1800, 1, rng)), "s"
    )
    lines.note("sample, day, N=1800: 100 more", best_of(1, lambda: DAY.sample(1800, 100, rng)), "s")
    lines.add("optimum, day, N=1800", best_of(1, lambda: DAY.optimum(1800, cost)), "s", 60.0, False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    lines.add("peak memory of this process", peak, "GB", 2.0, False)


def main() -> int:
    """Run every benchmark; 0 when every limit holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--day", action="store_true", help="add the day-long horizon")
    parser.add_argument("--highs-limit", type=float, default=30.0, help="seconds given to HiGHS")
    args = parser.parse_args()
    lines = Lines()
    sampling(lines)
    optimum(lines, args.highs_limit)
    null(lines)
    if args.day:
        day(lines)
    return 0 if lines.good else 1


if __name__ == "__main__":
    sys.exit(main())
