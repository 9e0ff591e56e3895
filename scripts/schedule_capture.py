"""Corridor -> the schedule of a capture: no merges (nosync) or random feasible ones (probe)."""

from safesync.job import job
from safesync.placement import Corridor
from safesync.policies.controls import control_facts, probe
from safesync.tables.schedule import SCHEDULE

params, wildcards = snakemake.params, snakemake.wildcards
with job("schedule_capture", snakemake.log[0]):
    corridor = Corridor(**params.corridor, merge_s=params.merge_s, horizon_s=params.horizon_s)
    block = (wildcards.regime, int(wildcards.seed))
    rows = SCHEDULE.empty() if wildcards.policy == "nosync" else probe(corridor, *block)
    facts = control_facts(wildcards.policy, corridor, len(rows), *block)
    SCHEDULE.write(snakemake.output.schedule, rows, facts)
