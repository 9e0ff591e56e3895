"""All blocks and the calibrated models -> emulated score rows of a policy, or of what all share.

Without a policy these are the runs without merges and the matched-random draws of every budget.
"""

from itertools import chain, cycle

import pandas as pd

from safesync.job import job
from safesync.placement import Corridor
from safesync.policies import find_policy
from safesync.policies.observe import observe_block
from safesync.policies.replay import decide_schedule
from safesync.policies.schedule import first_draw
from safesync.protocol.calibrated import read_calibrated
from safesync.protocol.emulated import (
    emulated_capture,
    emulated_rows,
    placements,
    shared_placements,
)
from safesync.tables import read_document
from safesync.tables.arrivals import ARRIVALS
from safesync.tables.learners import LEARNERS
from safesync.tables.requests import REQUESTS
from safesync.tables.schedule import SCHEDULE
from safesync.tables.scores import SCORES
from safesync.tables.seeded_arrivals import SEEDED_ARRIVALS

params, found, wildcards = snakemake.params, snakemake.input, snakemake.wildcards
policy = wildcards.get("policy")


def decided(capture, telemetry, learners, regime, seed):
    """Return the merge starts that the policy decides on, seconds."""
    trace = observe_block(capture, telemetry, learners, **params.signals)
    rows = None
    for entry in params.policies:  # one whose budget is taken comes first
        kind = find_policy(entry["policy"], entry["file"])
        rows, _ = decide_schedule(
            kind(kind.Parameters(**entry["params"])),
            corridor,
            trace,
            regime=regime,
            seed=seed,
            reference=rows,
        )
    return rows["start_s"].to_numpy()


def measured_blocks(regime):
    """Yield (seed, capture's tier, arrivals, capture, merge starts) of the judged blocks."""
    for place, (where, seed) in enumerate(params.measured):
        if where != regime:
            continue
        starts_s = None
        if policy:
            starts_s = first_draw(SCHEDULE.read(found.schedules[place]))["start_s"].to_numpy()
        arrivals = ARRIVALS.read(found.arrivals[place])
        yield seed, "vllm", arrivals, REQUESTS.read(found.captures[place]), starts_s


def further_blocks(regime, model, extra, seeds):
    """Yield the same of seeds that nothing measures; merges are decided on their emulated runs."""
    progress = cycle([LEARNERS.read(path) for path in found.learners] if policy else [None])
    for seed in seeds:
        arrivals = extra[extra["seed"] == seed].drop(columns="seed")
        capture, telemetry = emulated_capture(arrivals, model, params.horizon_s)
        learners = next(progress)
        starts_s = decided(capture, telemetry, learners, regime, seed) if policy else None
        yield seed, "emulator", arrivals, capture, starts_s


with job(f"emulate {policy or 'controls'}", snakemake.log[0]) as say:
    corridor = Corridor(**params.corridor, merge_s=params.merge_s, horizon_s=params.horizon_s)
    tables, warnings = [], {}
    by_regime = zip(
        params.kinds.items(), found.models, found.thresholds, found.emulated_arrivals, strict=True
    )
    for (regime, kind), model_path, threshold_path, arrivals_path in by_regime:
        model = read_calibrated(model_path, regime=regime, settings=params.settings[regime])
        if not model.calibrated or params.style != "blocking":
            why = model.why if not model.calibrated else f"its merges are {params.style}"
            say(f"{regime}: not emulated: {why}")
            continue
        threshold = read_document(threshold_path, ("metric", "threshold_s"))
        extra, facts = SEEDED_ARRIVALS.read_with_metadata(arrivals_path)
        warned = list(facts["missing"])
        blocks = chain(
            measured_blocks(regime), further_blocks(regime, model, extra, facts["seeds"])
        )
        for seed, captured_by, arrivals, capture, starts_s in blocks:
            warned += [f"seed {seed}: {said}" for said in model.load.outside(arrivals)]
            block = (corridor, params.draws, regime, seed)
            tables.append(
                emulated_rows(
                    placements(policy, starts_s, *block) if policy else shared_placements(*block),
                    arrivals,
                    capture,
                    model,
                    corridor,
                    slo_metric=threshold["metric"],
                    threshold_s=threshold["threshold_s"],
                    identity={
                        "run": wildcards.run,
                        "regime": regime,
                        "kind": kind,
                        "seed": seed,
                        "role": params.role,
                        "capture": captured_by,
                    },
                )
            )
        warnings[regime] = warned
        for warning in warned:
            say(f"warning: {regime}, {warning}")
    rows = pd.concat(tables, ignore_index=True) if tables else SCORES.empty()
    say(f"{len(rows)} replays")
    SCORES.write(snakemake.output.scores, rows, {"warnings": warnings})
