"""How often each verdict comes out when the truth is known.

Run with `python benchmarks/verdicts.py [--studies 1000]`. A study is simulated as rates: each block
has a level that all its replays share, its matched-random draws scatter around it by `--draw-sd`,
and the policy by `--policy-sd` around the level less the true gain; `--run-sd` is added to both.
Rates are cut to [0, 1] and rounded to whole requests, so ties occur as in real runs. Four truths
without a gain and four with one are judged by design (blocks x draws):

- like a draw: the policy is one more matched-random draw (the null of the randomization test)
- own spread: nothing gained on average, but its luck with a trace is twice the draws' (the null of
  the sign-flip test)
- skewed: one more draw, where most draws do little harm and a few do much
- rare harm: nothing gained on average, by gaining a little on most traces and losing much on few;
  the null of neither test, shown for what it is and held to no bar

The defaults are one default run's: its three draws had an SD of 0.84 points (printed by
`--scores results/default`); each is one run, so that run-to-run noise is in it.

Statistics are the protocol's own; the rule is the judge's with every gate passed that needs more
than rates, so the verdict is the most lenient that the rules allow. The judge takes some 0.2 s for
one study, most of it for tables (and statsmodels collects garbage at every Holm), so the rule is
applied to plain numbers here, and `--checks` studies of each line go through the judge as well.
The column "expected" is what `safesync.protocol.power` foresees of EARNED.

The exit status is 1 when a verdict differs from the judge's, or when a truth without a gain comes
out EARNED more often than alpha beyond sampling error.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from safesync.protocol import gates as g
from safesync.protocol.evidence import Rules
from safesync.protocol.power import chances
from safesync.protocol.statistics import mean_interval, randomization_test, sign_flip_test
from safesync.protocol.verdict import judge
from safesync.tables.scores import SCORES

WORDS = ("EARNED", "TIED", "INCONCLUSIVE", "HARMFUL")
DESIGNS = ((5, 3), (5, 9), (5, 19), (8, 3), (8, 9), (12, 3))
GAINS = (0.5, 1.0, 2.0, 4.0)  # points
PASSED = [
    (g.Scope(), g.Gate(name, True, None, None, "Passed."))
    for name in ("effect-size transfer", "causality", "training parity", "matched spacing")
]

Scatter = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Scatter of SD 1."""
    return rng.standard_normal(shape)


def skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Scatter of SD 1 whose long tail is harm: exponential, less its mean."""
    return rng.standard_exponential(shape) - 1


@dataclass(frozen=True)
class Truth:
    """What a policy really is: its gain in points, and how it and its draws scatter."""

    name: str
    gain: float = 0.0
    policy: Scatter = normal
    draws: Scatter = normal
    spread: float = 1.0  # of the policy, in units of --policy-sd
    bar: bool = True


TRUTHS = (
    Truth("like a draw"),
    Truth("own spread", spread=2.0),
    Truth("skewed", policy=skewed, draws=skewed),
    Truth("rare harm", policy=skewed, spread=2.0, bar=False),
    *(Truth("like a draw", gain) for gain in GAINS),
)


def study(
    blocks: int,
    draws: int,
    args: argparse.Namespace,
    rng: np.random.Generator,
    truth: Truth,
) -> tuple[np.ndarray, np.ndarray]:
    """Rates of the policy (blocks,) and of its draws (blocks, draws)."""
    level = args.level + args.block_sd * rng.standard_normal(blocks)
    run = args.run_sd * rng.standard_normal((blocks, draws + 1))
    own = truth.spread * args.policy_sd * truth.policy(rng, (blocks, 1))
    others = args.draw_sd * truth.draws(rng, (blocks, draws))
    rates = level[:, None] + np.hstack([own - truth.gain, others]) + run
    rates = np.round(np.clip(rates / 100, 0, 1) * args.requests) / args.requests
    return rates[:, 0], rates[:, 1:]


def verdict(policy: np.ndarray, draws: np.ndarray, rules: Rules, claims: int) -> tuple[str, bool]:
    """The rule on plain numbers, and whether p_claim after Holm is at most alpha.

    The other claims of the study count in the family with p = 1. The randomization test is asked
    only where the sign flip has not settled that p_claim is too large.
    """
    blocks, each = draws.shape
    differences = policy - draws.mean(axis=1)
    gain = -float(differences.mean())
    chance = {"monte_carlo": rules.monte_carlo, "seed": rules.monte_carlo_seed}

    def significant(side: str) -> bool:
        flip = sign_flip_test(differences, alternative=side, **chance)
        if min(1.0, claims * flip.p) > rules.alpha:
            return False
        test = randomization_test(policy, draws, alternative=side, **chance)
        return min(1.0, claims * max(flip.p, test.p)) <= rules.alpha

    better = gain > 0 and significant("less")
    harms = -gain >= rules.min_gain and blocks >= rules.min_blocks
    if harms and significant("greater"):
        return "HARMFUL", better
    smallest = max(2.0**-blocks, (each + 1.0) ** -blocks, 1 / (rules.monte_carlo + 1))
    resolved = blocks >= rules.min_blocks and smallest <= rules.alpha / claims
    if better and resolved and g.minimum_gain(gain, min_gain=rules.min_gain).passed:
        return "EARNED", better
    interval = mean_interval(differences, rules.interval_level)
    if interval.low > -rules.min_gain and interval.high < rules.min_gain:
        return "TIED", better
    return "INCONCLUSIVE", better


def judged(policy: np.ndarray, draws: np.ndarray, rules: Rules, claims: int) -> str:
    """The verdict that the judge gives to the same study."""
    rows = []
    for block, (own, others) in enumerate(zip(policy, draws, strict=True)):
        rows += [_row("nosync", block, 0.0, budget=0), _row("claim_0", block, own)]
        rows += [_row("matched_random", block, rate, draw) for draw, rate in enumerate(others)]
    return judge(
        pd.DataFrame(rows),
        rules.model_dump(),
        [f"claim_{number}" for number in range(claims)],
        thresholds_s={"bursty": 1.0},
        horizon_s=100.0,
        replay_s=150.0,
        given_gates=PASSED,
        seeds={},
    )["verdicts"][0]["verdict"]


def _row(policy: str, block: int, rate: float, draw: int = 0, budget: int = 4) -> dict:
    return dict.fromkeys(SCORES.schema.names) | {
        "run": "simulated",
        "tier": "vllm",
        "regime": "bursty",
        "kind": "bursty",
        "seed": block,
        "role": "judge",
        "policy": policy,
        "draw": draw,
        "budget": budget,
        "requests": 1000,
        "sent": 1000,
        "offered_prompt_tokens": 1000,
        "arrivals_sha256": str(block),
        "violation_rate": rate,
        "excess_rate": rate,
        "lateness_p99_s": 0.0,
        "loop_lag_p99_s": 0.0,
        "merge_seconds": 8.0 * budget,
        "planned_merge_seconds": 8.0 * budget,
        "feasible": True,
        "valid": True,
        "fingerprint": "one",
    }


def measured_sd(results: Path) -> float:
    """SD of the violation rate among the draws of a run, pooled over blocks and budgets, points."""
    scores = pd.concat(
        SCORES.read(path) for path in sorted((results / "scores").rglob("*.parquet"))
    )
    draws = scores[scores["policy"] == "matched_random"].groupby(
        ["tier", "regime", "seed", "budget"], observed=True
    )["violation_rate"]
    freedom = (draws.count() - 1).sum()
    if not freedom:
        raise ValueError(f"{results}: no block has two draws of one budget")
    return 100 * float(np.sqrt((draws.var(ddof=0) * draws.count()).sum() / freedom))


def main() -> int:
    """Simulate the studies; 0 when the rule is the judge's and no gain is invented too often."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=1000, help="of each truth and design")
    parser.add_argument("--checks", type=int, default=2, help="of them also given to the judge")
    parser.add_argument("--draw-sd", type=float, default=0.84, help="points")
    parser.add_argument("--policy-sd", type=float, help="points; default: as the draws")
    parser.add_argument("--run-sd", type=float, default=0.0, help="added to every replay, points")
    parser.add_argument("--block-sd", type=float, default=3.0, help="of the blocks' level, points")
    parser.add_argument("--level", type=float, default=15.0, help="mean rate, points")
    parser.add_argument("--requests", type=int, default=275, help="per replay")
    parser.add_argument("--claims", type=int, default=1, help="declared; the others gain nothing")
    parser.add_argument("--scores", type=Path, help="take --draw-sd from the draws of a run")
    args = parser.parse_args()
    if args.scores:
        try:
            args.draw_sd = measured_sd(args.scores)
        except (ValueError, OSError) as error:
            raise SystemExit(f"{parser.prog}: {error}") from None
    args.policy_sd = args.draw_sd if args.policy_sd is None else args.policy_sd
    rules = Rules(monte_carlo=9_999)

    gc.freeze()  # statsmodels collects garbage at every Holm, all that the imports left included
    begin = time.monotonic()
    print(
        f"{args.studies} studies per line; SD of a draw {args.draw_sd:.2f}, of the policy "
        f"{args.policy_sd:.2f}, of a run {args.run_sd:.2f} points; {args.requests} requests; "
        f"{args.claims} claim(s), alpha {rules.alpha:g}, min_gain {100 * rules.min_gain:g} point(s)"
    )
    print(f"{'truth':<14}{'gain':>5}{'blocks x draws':>16}", end="")
    print("".join(f"{word:>14}" for word in WORDS), f"{'expected':>10}{'p<=alpha':>10}")
    differing, false = 0, defaultdict(list)
    for number, truth in enumerate(TRUTHS):
        for blocks, draws in DESIGNS:
            rng = np.random.default_rng([number, blocks, draws])
            counts, significant = Counter(), 0
            for index in range(args.studies):
                rates = study(blocks, draws, args, rng, truth)
                word, better = verdict(*rates, rules, args.claims)
                counts[word] += 1
                significant += better
                if index < args.checks and judged(*rates, rules, args.claims) != word:
                    differing += 1
            sd = np.hypot(truth.spread * args.policy_sd, args.draw_sd / np.sqrt(draws))
            sd = np.sqrt(sd**2 + args.run_sd**2 * (1 + 1 / draws))
            expected = chances(
                truth.gain / 100,
                sd / 100,
                blocks,
                level=rules.alpha / args.claims,
                min_gain=rules.min_gain,
                resolved=max(2.0**-blocks, (draws + 1.0) ** -blocks) <= rules.alpha / args.claims,
            )
            shares = [100 * counts[word] / args.studies for word in WORDS]
            print(f"{truth.name:<14}{truth.gain:>5.1f}{blocks:>11} x {draws:<2}", end="")
            print("".join(f"{share:>12.1f} %" for share in shares), end="")
            print(f"{100 * expected.earned:>9.1f} %{100 * significant / args.studies:>8.1f} %")
            if truth.gain == 0:
                false[truth].append(counts["EARNED"])
    print()
    wrong = 0
    for truth, counted in false.items():
        most = stats.binomtest(max(counted), args.studies)
        wrong += truth.bar and most.proportion_ci(0.998).low > rules.alpha
        likely = most.proportion_ci(0.95)
        print(
            f"no gain, {truth.name}: EARNED in {sum(counted)} of {len(counted) * args.studies} "
            f"studies; most in one line {100 * max(counted) / args.studies:.1f} % (95 % interval "
            f"{100 * likely.low:.1f} to {100 * likely.high:.1f} %), "
            + (f"alpha {100 * rules.alpha:g} %" if truth.bar else "no bar")
        )
    checked = args.checks * len(DESIGNS) * len(TRUTHS)
    took_s = time.monotonic() - begin
    print(f"{differing} of {checked} verdicts differ from the judge's; {took_s:.0f} s")
    return int(wrong > 0 or differing > 0)


if __name__ == "__main__":
    sys.exit(main())
