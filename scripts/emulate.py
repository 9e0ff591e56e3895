"""A policy, all blocks and the calibrated models -> its emulated score rows and its controls'."""

from itertools import cycle

import pandas as pd

from safesync.job import job
from safesync.placement import Corridor
from safesync.policies import find_policy
from safesync.policies.observe import observe_block
from safesync.policies.replay import decide_schedule
from safesync.policies.schedule import first_draw
from safesync.protocol.calibrated import read_calibrated
from safesync.protocol.emulated import emulated_capture, emulated_rows, placements
from safesync.tables import read_document
from safesync.tables.arrivals import ARRIVALS
from safesync.tables.learners import LEARNERS
from safesync.tables.requests import REQUESTS
from safesync.tables.schedule import SCHEDULE
from safesync.tables.scores import SCORES
from safesync.tables.seeded_arrivals import SEEDED_ARRIVALS

params, found, wildcards = snakemake.params, snakemake.input, snakemake.wildcards


def decided(capture, telemetry, learners, regime, seed):
    """Return the merge starts that the policy decides on, seconds."""
    trace = observe_block(capture, telemetry, learners, **params.signals)
    rows = None
    for entry in params.policies:  # one whose budget is taken comes first
        policy = find_policy(entry["policy"], entry["file"])
        rows, _ = decide_schedule(
            policy(policy.Parameters(**entry["params"])),
            corridor,
            trace,
            regime=regime,
            seed=seed,
            reference=rows,
        )
    return rows["start_s"].to_numpy()


with job(f"emulate {wildcards.policy}", snakemake.log[0]) as say:
    corridor = Corridor(**params.corridor, merge_s=params.merge_s, horizon_s=params.horizon_s)
    learners = [LEARNERS.read(path) for path in found.learners]
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
        blocks = [
            (
                seed,
                "vllm",
                ARRIVALS.read(arrivals),
                REQUESTS.read(capture),
                first_draw(SCHEDULE.read(schedule))["start_s"].to_numpy(),
            )
            for (where, seed), arrivals, capture, schedule in zip(
                params.measured,
                found.get("arrivals", []),
                found.get("captures", []),
                found.get("schedules", []),
                strict=True,
            )
            if where == regime
        ]
        extra, facts = SEEDED_ARRIVALS.read_with_metadata(arrivals_path)
        warned = list(facts["missing"])
        progress = cycle(learners)
        for seed in facts["seeds"]:
            arrivals = extra[extra["seed"] == seed].drop(columns="seed")
            capture, telemetry = emulated_capture(arrivals, model, params.horizon_s)
            starts_s = decided(capture, telemetry, next(progress), regime, seed)
            blocks.append((seed, "emulator", arrivals, capture, starts_s))
        threshold = read_document(threshold_path, ("metric", "threshold_s"))
        for seed, captured_by, arrivals, capture, starts_s in blocks:
            warned += [f"seed {seed}: {said}" for said in model.load.outside(arrivals)]
            tables.append(
                emulated_rows(
                    placements(wildcards.policy, starts_s, corridor, params.draws, regime, seed),
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
