"""How well real DiLoCo runs trained on the schedules, and what the parity gate says of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from safesync.protocol import parity
from safesync.protocol.blocks import CONTROL, judged_policy


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """One training run: the facts of its TRAINING table and the rows."""

    facts: Mapping
    losses: pd.DataFrame

    @property
    def policy(self) -> str:
        """The policy whose schedule it was; matched random whatever its budget."""
        return judged_policy(self.facts["policy"])

    @property
    def style(self) -> str:
        """How its merges reached the islands; blocking where the facts don't say."""
        return self.facts.get("style", "blocking")

    @property
    def budget(self) -> int:
        """Merges of the schedule; one more closes the training."""
        return len(self.facts["merges"])

    @property
    def final_loss(self) -> float:
        """Held-out loss of the merged model at the end, nats per token."""
        return self.facts["final_heldout_loss"]


def in_order(runs: Sequence[TrainingRun], policies: Sequence[str]) -> list[TrainingRun]:
    """Return the runs by block, policies as listed, budget, draw and training seed."""
    places = {policy: place for place, policy in enumerate(policies)}
    return sorted(
        runs,
        key=lambda run: (
            run.facts["seed"],
            run.policy == CONTROL,
            places.get(run.policy, len(places)),
            run.policy,
            run.budget,
            run.facts["draw"],
            run.facts["training_seed"],
        ),
    )


def final_losses(runs: Sequence[TrainingRun], policies: Sequence[str]) -> dict:
    """Return the final held-out losses of one regime as a table, nats per token.

    ``seeds``: the training seeds. ``rows``: per schedule its ``block``, ``policy``, ``style``,
    ``draw``, ``budget``, ``losses`` by training seed (None: no run), their ``mean``, and
    ``difference``: the mean over training seeds of its loss less the mean of its block's draws of
    its budget, as in the parity gate; None for a draw and for another style than blocking, which
    the draws have, and without a training seed that both have.
    """
    seeds = sorted({run.facts["training_seed"] for run in runs})
    schedules: dict[tuple, dict[int, float]] = {}
    drawn: dict[tuple, list[float]] = {}
    for run in in_order(runs, policies):
        block, seed = run.facts["seed"], run.facts["training_seed"]
        key = (block, run.policy, run.style, run.facts["draw"], run.budget)
        schedules.setdefault(key, {})[seed] = run.final_loss
        if run.policy == CONTROL:
            drawn.setdefault((block, run.budget, seed), []).append(run.final_loss)
    rows = []
    for (block, policy, style, draw, budget), losses in schedules.items():
        differences = [
            loss - _mean(drawn[block, budget, seed])
            for seed, loss in losses.items()
            if policy != CONTROL and style == "blocking" and (block, budget, seed) in drawn
        ]
        rows.append(
            {
                "block": block,
                "policy": policy,
                "style": style,
                "draw": draw,
                "budget": budget,
                "losses": [losses.get(seed) for seed in seeds],
                "mean": _mean(list(losses.values())),
                "difference": _mean(differences) if differences else None,
            }
        )
    return {"seeds": seeds, "rows": rows}


def parity_gates(results: Sequence[Mapping]) -> list[dict]:
    """Return the parity gates of one regime's results, each policy once: policy, passed, sentence.

    The gate is one for all tiers of a policy, for it rests on training alone.
    """
    found = {
        result["policy"]: {
            "policy": result["policy"],
            "passed": gate["passed"],
            "sentence": gate["sentence"],
        }
        for result in results
        for gate in result["gates"]
        if gate["name"] == parity.NAME
    }
    return list(found.values())


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
