"""What a policy's author iterates with: emulated gains on tune seeds. It is no evidence."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from safesync.protocol.blocks import Block, collect
from safesync.protocol.gates import EMULATED_TIER


def explored(scores: pd.DataFrame, policies: Sequence[str], tune: Sequence[int]) -> pd.DataFrame:
    """Return one row per regime and policy: means over the tune seeds, rates in points.

    ``scores``: emulated rows of SCORES. ``tune``: the seeds that may be looked at. ``gain`` is over
    matched-random placements, ``spacing_gain`` over the policy's own gaps in other orders;
    ``better_draws``: share of matched-random placements that do at least as well.

    ValueError: there is no tune seed, or a row of another one: a policy that was chosen on judge
    seeds can't be judged on them.
    """
    if not tune:
        raise ValueError(
            "seeds.tune is empty; expected seeds to iterate on, apart from the judge's"
        )
    others = sorted(set(scores["seed"]) - set(tune))
    if others or not (scores["role"] == "tune").all():
        raise ValueError(
            f"the explored rows hold seeds {others}, expected tune seeds {list(tune)} only"
        )
    rows = []
    for regime in sorted(set(scores["regime"])):
        for policy in policies:
            blocks = collect(scores, EMULATED_TIER, regime, policy)
            if blocks:
                rows.append({"regime": regime, "policy": policy, **_means(blocks)})
    return pd.DataFrame(rows)


def _means(blocks: Sequence[Block]) -> dict[str, float]:
    def mean(figure) -> float:
        return float(np.mean([figure(block) for block in blocks]))

    return {
        "merges": mean(lambda block: block.policy["budget"]),
        "violations": 100 * mean(lambda block: block.rate),
        "matched_random": 100 * mean(lambda block: block.control_rate),
        "gain": -100 * mean(lambda block: block.difference),
        "spacing_gain": 100
        * mean(lambda block: block.spacing["violation_rate"].mean() - block.rate),
        "better_draws": mean(
            lambda block: (block.draws["violation_rate"] <= block.rate + 1e-12).mean()
        ),
    }
