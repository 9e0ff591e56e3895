"""All measurements of a block and the SLO threshold -> one score row for each."""

import pandas as pd

from safesync.job import job
from safesync.placement import Corridor
from safesync.protocol.blocks import replayed_policy
from safesync.protocol.provenance import check_identity, check_settings
from safesync.protocol.scores import score
from safesync.protocol.validity import Limits
from safesync.tables import read_document
from safesync.tables.arrivals import ARRIVALS
from safesync.tables.merges import MERGES
from safesync.tables.requests import REQUESTS
from safesync.tables.schedule import SCHEDULE
from safesync.tables.scores import SCORES

params, found, wildcards = snakemake.params, snakemake.input, snakemake.wildcards
with job("score", snakemake.log[0]) as say:
    threshold = read_document(found.threshold, ("metric", "threshold_s"))
    limits = Limits(
        lateness_s=params.protocol["lateness_limit"] * threshold["threshold_s"],
        loop_lag_s=params.protocol["loop_lag_limit_s"],
        merge_tolerance_s=params.end_tolerance_s,
    )
    corridor = Corridor(**params.corridor, merge_s=params.merge_s, horizon_s=params.horizon_s)
    arrivals = ARRIVALS.read(found.arrivals)
    nosync = REQUESTS.read(found.requests[0])
    tables = zip(
        params.replays,
        params.measured_with,
        [*found.requests, *found.drawn_requests],
        [*found.merges, *found.drawn_merges],
        [*found.manifests, *found.drawn_manifests],
        [*found.schedules, *found.drawn_schedules],
        strict=True,
    )
    block = {
        "run": wildcards.run,
        "regime": wildcards.regime,
        "seed": int(wildcards.seed),
    }
    rows = []
    for (path_policy, draw), settings, requests, merges, manifest, schedule_path in tables:
        facts = read_document(manifest, ("figures", "fingerprint", "config", "horizon_s"))
        check_identity(manifest, facts, block | {"policy": path_policy, "draw": draw})
        check_settings(manifest, facts, settings)
        schedule, decided = SCHEDULE.read_with_metadata(schedule_path)
        schedule = schedule[schedule["draw"] == draw]
        starts_s = schedule["start_s"].to_numpy()
        policy, control_of = replayed_policy(decided, path_policy)
        row = score(
            REQUESTS.read(requests),
            MERGES.read(merges),
            schedule,
            arrivals,
            nosync,
            slo_metric=threshold["metric"],
            threshold_s=threshold["threshold_s"],
            merge_s=params.merge_s,
            feasible=path_policy == "nosync" or corridor.feasible(starts_s) is None,
            identity={
                **block,
                "tier": "vllm",
                "kind": params.kind,
                "role": params.role,
                "policy": policy,
                "control_of": control_of,
                "draw": draw,
                "budget": len(schedule),
            },
            manifest=facts,
            limits=limits,
        )
        say(
            f"{path_policy} draw {draw}: {row['violation_rate']:.1%} violations, "
            f"lateness p99 {row['lateness_p99_s'] * 1e3:.1f} ms"
            + ("" if row["valid"] else f", INVALID: {row['invalid_reason']}")
        )
        rows.append(row)
    SCORES.write(snakemake.output.scores, pd.DataFrame(rows))
