"""How often a policy comes out EARNED on the overlap tier when the load is steady.

Run with `PYTHONPATH=src python benchmarks/steady.py [--studies 300] [--blocks 5]`. Arrivals are
Poisson and every request stays a fixed time, so nothing is there to foresee. Load-blind policies
(a fixed period, one random schedule) must come out EARNED at most alpha of the time, sampling error
aside; the exit status is 1 when one does not. Beside it: how often the convolved rank test alone
would have said so, and that test together with the sign flip. The gate that merges when nothing is
in flight is there for contrast: it sees real gaps, so its EARNED is no error on this tier.

Each policy is judged as the only claim of its study, and every gate that needs more than arrivals
counts as passed: the verdict is the most lenient that the rules allow. The grid is 1 s (a period of
256 published steps is 32 of them).
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from typing import ClassVar

import numpy as np
import pandas as pd
from scipy import stats

from safesync.placement import Corridor
from safesync.policies.base import Decision, Observation, Policy
from safesync.policies.fixed_h import FixedH
from safesync.policies.fixed_h import Parameters as Period
from safesync.policies.observe import ObservedTrace
from safesync.policies.replay import decide_schedule
from safesync.protocol.evidence import Rules
from safesync.protocol.overlap import overlap_rows
from safesync.protocol.verdict import judge
from safesync.tables.scores import SCORES
from safesync.workload.streams import stream

CORRIDOR = Corridor(h_min=16, h_max=64, step_s=1.0, merge_s=8.0, horizon_s=600.0)
RANDOM_BUDGET = 11  # mid-corridor
LOAD_BLIND = ("fixed_h_256", "fixed_h_512", "random")
REGIME = "steady"


class IdleGate(Policy):
    """Merge as soon as no request is in flight."""

    name: ClassVar[str] = "idle_gate"

    def decide(self, observation: Observation) -> Decision:
        """Merge when nothing is in flight."""
        return Decision(merge=observation.in_flight == 0)


def poisson_requests(rate: float, service_s: float, rng: np.random.Generator) -> pd.DataFrame:
    """Requests of one block: `rate` per second over the horizon, each done after `service_s`."""
    arrival_s = np.sort(rng.uniform(0, CORRIDOR.horizon_s, rng.poisson(rate * CORRIDOR.horizon_s)))
    return pd.DataFrame({"arrival_s": arrival_s, "done_s": arrival_s + service_s})


def observable(requests: pd.DataFrame) -> ObservedTrace:
    """The block as policies see it, with idle signals and a learner that makes no progress."""
    steps = CORRIDOR.grid.horizon
    return ObservedTrace(
        arrival_s=requests["arrival_s"].to_numpy(),
        done_s=requests["done_s"].to_numpy(),
        telemetry_s=np.arange(steps, dtype=float),
        pressures=np.zeros((3, steps)),
        loss=np.zeros((1, steps)),
        tokens=np.zeros((1, steps), dtype=np.int64),
    )


def block(study: int, seed: int, fixed: dict, args: argparse.Namespace) -> pd.DataFrame:
    """OVERLAP rows of one block: all policies on one trace."""
    rng = stream("steady", study, seed)
    requests = poisson_requests(args.rate, args.service_s, rng)
    gate, _ = decide_schedule(IdleGate(), CORRIDOR, observable(requests))
    random = CORRIDOR.starts(CORRIDOR.sample(RANDOM_BUDGET, 1, rng)[0])
    return overlap_rows(
        fixed | {"random": random, "idle_gate": gate["start_s"].to_numpy()},
        requests,
        CORRIDOR,
        identity={
            "run": f"steady-{study}",
            "regime": REGIME,
            "kind": "steady",
            "seed": seed,
            "role": "judge",
        },
        max_orders=args.orders,
    )


def verdicts(overlap: pd.DataFrame, policy: str) -> tuple[bool, bool, bool]:
    """Whether `policy` is EARNED, passes both tests, and passes the rank test alone."""
    result = judge(
        SCORES.empty(),
        {},
        [policy],
        thresholds_s={},
        horizon_s=CORRIDOR.horizon_s,
        replay_s=0.0,
        overlap=overlap[overlap["policy"] == policy],
    )["verdicts"][0]
    claim, alpha = result["claim"], Rules().alpha
    return (
        result["would_be"] == "EARNED",
        claim["p_claim"] <= alpha,
        claim["randomization"]["p"] <= alpha,
    )


def main() -> int:
    """Simulate the studies; 0 when no load-blind policy is EARNED too often."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=300)
    parser.add_argument("--blocks", type=int, default=5, help="blocks of each study")
    parser.add_argument("--rate", type=float, default=0.5, help="arrivals per second")
    parser.add_argument("--service-s", type=float, default=2.0, help="time a request stays, s")
    parser.add_argument("--orders", type=int, default=2000, help="orders of gaps that are compared")
    args = parser.parse_args()

    # statsmodels collects garbage at every Holm: three quarters of the time, unless it is spared
    # all that the imports left.
    gc.freeze()
    trace = observable(poisson_requests(args.rate, args.service_s, stream("steady")))
    fixed = {
        f"fixed_h_{8 * h}": decide_schedule(FixedH(Period(h=h)), CORRIDOR, trace)[0][
            "start_s"
        ].to_numpy()
        for h in (32, 64)
    }
    policies = [*LOAD_BLIND, "idle_gate"]
    counts = {policy: np.zeros(3, dtype=int) for policy in policies}
    begin = time.monotonic()
    for study in range(args.studies):
        overlap = pd.concat(
            [block(study, seed, fixed, args) for seed in range(args.blocks)], ignore_index=True
        )
        for policy in policies:
            counts[policy] += verdicts(overlap, policy)
        if sys.stderr.isatty():
            left_s = (time.monotonic() - begin) * (args.studies / (study + 1) - 1)
            print(f"\rstudy {study + 1} of {args.studies}, {left_s:.0f} s left ", end="",
                  file=sys.stderr, flush=True)  # fmt: skip

    alpha = Rules().alpha
    most = int(stats.binom.ppf(0.99, args.studies, alpha))
    print(
        f"{args.studies} steady studies of {args.blocks} blocks; alpha {alpha:g}; a rate of alpha "
        f"gives at most {most} EARNED in 99 of 100 such runs"
    )
    print(f"{'policy':<14}{'EARNED':>10}{'both tests':>12}{'rank alone':>12}")
    for policy, found in counts.items():
        shares = 100 * found / args.studies
        print(f"{policy:<14}{shares[0]:>8.1f} %{shares[1]:>10.1f} %{shares[2]:>10.1f} %")
    return int(any(counts[policy][0] > most for policy in LOAD_BLIND))


if __name__ == "__main__":
    sys.exit(main())
