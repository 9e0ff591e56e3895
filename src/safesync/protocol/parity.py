"""Gate 6, training parity: a schedule trains no worse than matched-random ones of its budget.

A non-inferiority test: what is to be shown is that the final held-out loss is worse by less than
the margin, so doubt counts against the schedule. Each training seed gives one difference, policy
less the mean of its draws, both trained from the same parameters on the same data; where a regime
has several blocks, their differences of a seed are averaged first, for they share its data.

The bound is Student's t over training seeds. Each difference is one of means over thousands of
held-out tokens, hence near normal, and a training run is too dear for many: a sign-flip test could
not fall to 0.05 below five seeds, while t needs two.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from safesync.protocol.blocks import CONTROL
from safesync.protocol.gates import Gate, Scope, count, not_available

NAME = "training parity"
_SLACK = 1e-12  # as in the other gates: a figure computed in floating point passes at its limit
# what must not differ between runs that are compared
_ALIKE = (
    *("steps", "islands", "batch", "parameters", "slot", "slots", "corpus_sha256"),
    *("fragments", "delay_steps"),
)


def training_parity(
    policy: str, regime: str, runs: Sequence[Mapping], *, margin: float, alpha: float
) -> tuple[Scope, Gate]:
    """Return the gate of ``policy`` in ``regime``, and the verdicts that it belongs to.

    ``runs``: the facts of TRAINING tables (see there) of that regime; those of the policy and of
    the matched-random draws of its budget are compared, block by block and training seed by
    training seed, and others are ignored. ``margin``: nats per token. Figure: the upper end of the
    one-sided 1 - ``alpha`` interval of the mean difference, nats; it passes below ``margin``, and
    fails when even the lower end is not. In between, and below two training seeds, it is not
    computed: more seeds are needed.

    Raises ValueError for compared runs that differ in more than schedule and initial state.
    """
    scope = Scope(regime=regime, policy=policy)
    here = [run for run in runs if run["regime"] == regime]
    own = [run for run in here if run["policy"] == policy]
    if not own:
        return scope, not_available(NAME, "No training run on this policy's schedules exists.")
    blocks = sorted({run["seed"] for run in own})
    seeds = sorted({run["training_seed"] for run in own})
    table = np.empty((len(blocks), len(seeds)))
    for row, block in enumerate(blocks):
        for column, seed in enumerate(seeds):
            found = [run for run in here if (run["seed"], run["training_seed"]) == (block, seed)]
            difference = _difference(policy, found)
            if difference is None:
                return scope, not_available(
                    NAME,
                    f"Block {block}, training seed {seed}: a run of the policy or of a "
                    "matched-random draw of its budget is missing.",
                )
            table[row, column] = difference
    return scope, _gate(table.mean(axis=0), margin=margin, alpha=alpha)


def _difference(policy: str, runs: Sequence[Mapping]) -> float | None:
    """Return how much worse the policy trained than its draws, nats; None when one is missing."""
    own = [run for run in runs if run["policy"] == policy]
    if not own:
        return None
    control = f"{CONTROL}_{len(own[0]['merges'])}"
    draws = [run for run in runs if run["policy"] == control]
    if not draws:
        return None
    for run in draws:
        differing = [name for name in _ALIKE if run[name] != own[0][name]]
        if differing:
            raise ValueError(
                f"training runs of {policy} and {control}, training seed {run['training_seed']}, "
                f"differ in {', '.join(differing)}; expected the same for both"
            )
    drawn = [run["final_heldout_loss"] for run in draws]
    return own[0]["final_heldout_loss"] - math.fsum(drawn) / len(drawn)


def _gate(differences: np.ndarray, *, margin: float, alpha: float) -> Gate:
    """Return the gate of one difference per training seed, shape (seeds,), nats."""
    seeds, mean = len(differences), float(differences.mean())
    said = f"Final held-out loss {mean:+z.4f} nats against matched-random schedules of its budget"
    if seeds < 2:
        return Gate(
            NAME,
            None,
            None,
            margin,
            f"{said}; one training seed has no spread, at least two are needed.",
        )
    error = float(differences.std(ddof=1)) / math.sqrt(seeds)
    half = float(stats.t.ppf(1 - alpha, seeds - 1)) * error
    low, high = mean - half, mean + half
    passed = True if high < margin - _SLACK else False if low >= margin - _SLACK else None
    said = (
        f"{said}, at most {high:+z.4f} ({1 - alpha:.0%}, {count(seeds, 'training seed')}), margin "
        f"{margin:g}"
    )
    return Gate(
        NAME,
        passed,
        high,
        margin,
        f"{said}; undecided, more seeds." if passed is None else f"{said}.",
    )
