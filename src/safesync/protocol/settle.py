"""What would settle an inconclusive case: blocks, draws, and the time that they take here."""

import math
from dataclasses import replace
from functools import partial

import numpy as np

from safesync.protocol import document as doc
from safesync.protocol.evidence import Case, Study
from safesync.protocol.gates import EMULATED_TIER, OVERLAP_TIER, count, points
from safesync.protocol.power import (
    MOST_BLOCKS,
    TARGET,
    Awareness,
    Chances,
    Design,
    Noise,
    noise_of,
    smallest_design,
)
from safesync.protocol.statistics import blocks_to_resolve, smallest_p

_NO_FREEDOM = 0.01  # so little could a block lower p that some 300 would be needed
_NO_DESIGN = ("blocks", "more_blocks", "draws", "smallest_p", "replays", "wall_s")


def settle(study: Study, case: Case, family: int) -> doc.Settle | None:
    """Return what would settle ``case``, one of ``family`` claims of its tier.

    The gains and the noise seen in the case are taken as true: the design of fewest further replays
    with which it is then EARNED, HARMFUL or TIED with probability ``power.TARGET``. EARNED needs a
    gain over the policy's own gaps in other orders as well, where the tier carries it. One block
    shows no noise over blocks; what is returned then is the least that is needed, the blocks with
    which p can fall low enough beside that one. The sentence says first when blocks are too short
    for the margin, or hold too little to be gained.

    None without evidence, or when the budget leaves no placement to test.
    """
    if case.interval is None:
        return None
    finest = _finest(case)
    if finest < _NO_FREEDOM:
        return None
    rules, have = study.rules, Design(len(case.blocks), case.draws, case.orders)
    first, level = _first(case, rules.min_gain), rules.alpha / family
    resolving = blocks_to_resolve(finest, level, rules.min_blocks)
    facts = {"resolving_blocks": resolving, "resolving_p": smallest_p(finest, resolving)}
    noise = noise_of(case.differences, case.draw_rates, case.run_sd)
    if noise is None:
        least = replace(have, blocks=_least(case, level, resolving, finest))
        planned = _planned(study, case, have, least, finest)
        against = " beside this one, which did not go for the policy"
        return doc.Settle(
            **facts,
            **planned,
            **dict.fromkeys(("probability", "likely", "assumed")),
            sentence=f"{first}At least {_design(least)} in all, so that p can fall low enough"
            f"{against if least.blocks > resolving else ''}: {_cost(case.tier, planned)}. One "
            "block gives no estimate of the noise.",
        )
    awareness = _awareness(case, level, rules.min_blocks)
    facts["assumed"] = _assumed(case, noise, awareness)
    smallest = partial(
        smallest_design,
        case.gain,
        noise,
        have,
        alpha=rules.alpha,
        family=family,
        min_gain=rules.min_gain,
        min_blocks=rules.min_blocks,
        interval_level=rules.interval_level,
        exact_draws=finest,
    )
    found = smallest(awareness=awareness)
    if found is None:
        if awareness is not None and smallest() is not None:
            why = (
                f"{_also(awareness)}: what it gains is then its rhythm's, and any schedule of such "
                "gaps has it"
            )
        else:
            margin = points(rules.min_gain)
            why = (
                f"{_if(case, noise, have)}: too near the margin of \u00b1{margin} for that scatter"
            )
        return doc.Settle(
            **facts,
            **dict.fromkeys((*_NO_DESIGN, "probability", "likely")),
            sentence=f"{first}No design of up to {MOST_BLOCKS} blocks settles it with probability "
            f"{TARGET:g} if {why}.",
        )
    design, expected = found
    planned = _planned(study, case, have, design, finest)
    likely = _likely(expected)
    also = f", and {_also(awareness)}" if awareness is not None and likely == "EARNED" else ""
    return doc.Settle(
        **facts,
        **planned,
        probability=expected.settled,
        likely=likely,
        sentence=f"{first}{_design(design)} (there are {_design(have)}) settle it with "
        f"probability {expected.settled:.2f}, most likely as {likely}, if "
        f"{_if(case, noise, design)}{also}: {_cost(case.tier, planned)}.",
    )


def _finest(case: Case) -> float:
    """Return what one block can do to p, as that many draws would; the sign flip does as one."""
    return _per_block(case.better[0].smallest, case) if case.draws is None else case.draws


def _per_block(smallest: float, case: Case) -> float:
    blocks = len(case.blocks)
    return max(smallest, 2.0**-blocks) ** (-1 / blocks) - 1


def _least(case: Case, level: float, resolving: int, finest: float) -> int:
    """Return the fewest blocks with which p can fall to ``level``, those seen being what they are.

    Every further block at its best divides what the seen ones leave of each of the two tests.
    """
    seen = len(case.blocks)
    randomization, sign_flip = (part.p for part in case.better)
    blocks = max(resolving, seen + 1)
    while (
        max(randomization * (finest + 1) ** (seen - blocks), sign_flip * 2.0 ** (seen - blocks))
        > level
    ):
        blocks += 1
    return blocks


def _awareness(case: Case, level: float, min_blocks: int) -> Awareness | None:
    """Return the gain over its own gaps in other orders that was seen; None: not carried here."""
    if case.spacing is None:
        return None
    finest = _per_block(case.spacing[0].smallest, case)
    # each gain is the mean of one run of each order less one run of the policy
    runs = 1 + 1 / case.orders if case.orders else 0
    least_sd = (case.run_sd or 0.0) * math.sqrt(runs)
    return Awareness(
        case.spacing_gain,
        max(float(np.std(case.spacing_gains, ddof=1)), least_sd),
        blocks_to_resolve(finest, level, min_blocks) if finest >= _NO_FREEDOM else None,
    )


def _first(case: Case, min_gain: float) -> str:
    """Return a sentence on what more blocks do not help against; '' for nothing.

    There was less than ``min_gain`` to be gained, or one request of the shortest block exceeds it.
    """
    if case.room < min_gain:
        return "A harder load or objective first, for nothing could be gained here. "
    requests = min(block.requests for block in case.blocks)
    if not 0 < requests * min_gain < 1:
        return ""
    return (
        f"A block has {count(requests, 'request')}, so one request is {100 / requests:.3g} points "
        f"where {100 * min_gain:g} counts; longer blocks are needed. "
    )


def _planned(study: Study, case: Case, have: Design, design: Design, finest: float) -> dict:
    """Return the fields of Settle that describe ``design`` and what it adds to ``have``."""
    # on the emulated tier nothing is measured, and a replay costs next to nothing
    replays = 0 if case.tier == EMULATED_TIER else design.replays - have.replays
    return {
        "blocks": design.blocks,
        "more_blocks": design.blocks - have.blocks,
        "draws": design.draws,
        "smallest_p": smallest_p(finest if design.draws is None else design.draws, design.blocks),
        "replays": replays,
        "wall_s": replays * study.replay_s,
    }


def _assumed(case: Case, noise: Noise, awareness: Awareness | None) -> doc.Assumed:
    return doc.Assumed(
        gain_points=100 * case.gain,
        policy_sd_points=100 * noise.policy_sd,
        draw_sd_points=100 * noise.draw_sd,
        difference_sd_points=100 * noise.of_difference(case.draws),
        spacing_points=None if awareness is None else 100 * awareness.gain,
        spacing_sd_points=None if awareness is None else 100 * awareness.sd,
    )


def _likely(expected: Chances) -> doc.Word:
    words = {"EARNED": expected.earned, "HARMFUL": expected.harmful, "TIED": expected.tied}
    return max(words, key=words.get)


def _design(design: Design) -> str:
    blocks = count(design.blocks, "block")
    if design.draws is None:
        return blocks
    orders = f" and {count(design.orders, 'other order')}" if design.orders else ""
    return f"{blocks} of {count(design.draws, 'draw')}{orders}"


def _if(case: Case, noise: Noise, design: Design) -> str:
    scatter = 100 * noise.of_difference(design.draws)
    return (
        f"the gain is {100 * case.gain:+z.2f} points and the blocks' differences scatter by "
        f"{scatter:.2f}"
    )


def _also(awareness: Awareness) -> str:
    return (
        f"the gain over its own gaps in other orders is {100 * awareness.gain:+z.2f} points and "
        f"scatters by {100 * awareness.sd:.2f}"
    )


def _cost(tier: str, planned: dict) -> str:
    if tier == EMULATED_TIER:
        more = planned["more_blocks"]
        what = count(more, "more emulated seed") if more else "more emulated draws"
        return f"{what}, no measurement"
    what = "capture" if tier == OVERLAP_TIER else "replay"
    return (
        f"{count(planned['replays'], f'more {what}')}, {_duration(planned['wall_s'])} one after "
        "another"
    )


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
