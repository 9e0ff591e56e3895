"""Schedules and the capture of a block -> each policy's place among all placements there are."""

from safesync.job import job
from safesync.placement import Corridor
from safesync.policies.schedule import first_draw
from safesync.protocol.overlap import overlap_rows
from safesync.tables.overlap import OVERLAP
from safesync.tables.requests import REQUESTS
from safesync.tables.schedule import SCHEDULE

params, found, wildcards = snakemake.params, snakemake.input, snakemake.wildcards
with job("overlap", snakemake.log[0]):
    read = [SCHEDULE.read_with_metadata(path) for path in found.schedules]
    rows = overlap_rows(
        {
            policy: first_draw(schedule)["start_s"].to_numpy()
            for policy, (schedule, _) in zip(params.policies, read, strict=True)
        },
        REQUESTS.read(found.requests),
        Corridor(**params.corridor, merge_s=params.merge_s, horizon_s=params.horizon_s),
        identity={
            "run": wildcards.run,
            "regime": wildcards.regime,
            "kind": params.kind,
            "seed": int(wildcards.seed),
            "role": "judge",
        },
        facts={policy: facts for policy, (_, facts) in zip(params.policies, read, strict=True)},
    )
    OVERLAP.write(snakemake.output.overlap, rows)
