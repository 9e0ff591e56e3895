"""Real replays of a regime's judged blocks and the model -> how far the emulator is off."""

import pandas as pd

from safesync.emulator import Trace, simulate
from safesync.job import job
from safesync.protocol.agreement import Twin, agreement_rows, left_out, summary
from safesync.protocol.blocks import judged_policy, told_apart
from safesync.protocol.calibrated import read_calibrated
from safesync.protocol.emulated import merge_windows
from safesync.protocol.evidence import Rules
from safesync.tables import read_document, write_document
from safesync.tables.agreement import AGREEMENT
from safesync.tables.arrivals import ARRIVALS
from safesync.tables.requests import REQUESTS
from safesync.tables.schedule import SCHEDULE
from safesync.tables.scores import SCORES

params, found, wildcards = snakemake.params, snakemake.input, snakemake.wildcards
LUCKS = 20


def possible(starts_s, replay):
    """Return the windows of a schedule under each luck."""
    varies = len(starts_s) and model.model.contention[0].spread > 0
    return [
        merge_windows(starts_s, params.merge_s, model.model, (*replay, luck))
        for luck in range(LUCKS if varies else 1)
    ]


with job("agreement", snakemake.log[0]) as say:
    regime = wildcards.regime
    model = read_calibrated(found.model, regime=regime, settings=params.settings)
    threshold = read_document(found.threshold, ("metric", "threshold_s"))
    traces = {
        seed: Trace.from_rows(ARRIVALS.read(path))
        for seed, path in zip(params.seeds, found.arrivals, strict=True)
    }
    scores = pd.concat([SCORES.read(path) for path in found.scores], ignore_index=True)
    key = ["seed", "policy", "budget", "draw"]
    valid = told_apart(scores).set_index(key)["valid"].to_dict()
    replays = zip(
        params.replays,
        [*found.requests, *found.drawn_requests],
        [*found.schedules, *found.drawn_schedules],
        strict=True,
    )
    twins = []
    for (seed, path_policy, draw), requests, schedule_path in replays:
        if not model.calibrated or params.styles.get(path_policy, "blocking") != "blocking":
            continue
        schedule = SCHEDULE.read(schedule_path)
        starts_s = schedule.loc[schedule["draw"] == draw, "start_s"].to_numpy()
        measured = REQUESTS.read(requests)
        twins.append(
            Twin(
                identity={
                    "run": wildcards.run,
                    "regime": regime,
                    "seed": seed,
                    "policy": path_policy,
                    "draw": draw,
                    "budget": len(starts_s),
                    "schedule": f"seed {seed}, merges at "
                    + (" ".join(f"{start_s:g}" for start_s in starts_s) or "no time"),
                },
                measured=measured.drop(columns=["chunk_s", "chunk_tokens"]),
                emulated=[
                    simulate(traces[seed], windows, model.model).to_requests()
                    for windows in possible(starts_s, (regime, seed, path_policy, draw))
                ],
                valid=valid[seed, judged_policy(path_policy), len(starts_s), draw],
            )
        )
    rows = agreement_rows(twins, threshold["metric"], threshold["threshold_s"])
    AGREEMENT.write(snakemake.output.agreement, rows)
    found_out = summary(rows, twins, Rules().interval_level)
    say("nothing to compare" if found_out is None else found_out.sentence)
    warnings = list(filter(None, [left_out(twins)]))
    for warning in warnings:
        say(warning)
    write_document(
        snakemake.output.summary,
        {
            "regime": regime,
            "agreement": found_out and found_out.model_dump(mode="json"),
            "warnings": warnings,
        },
    )
