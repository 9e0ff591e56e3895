"""Block and budget -> all matched-random schedules of that budget."""

from safesync.job import job
from safesync.placement import Corridor
from safesync.policies.controls import control_facts, matched_random
from safesync.tables.schedule import SCHEDULE

params, wildcards = snakemake.params, snakemake.wildcards
with job("schedule_controls", snakemake.log[0]) as say:
    corridor = Corridor(**params.corridor, merge_s=params.merge_s, horizon_s=params.horizon_s)
    block = (wildcards.regime, int(wildcards.seed))
    budget = int(wildcards.budget)
    facts = control_facts("matched_random", corridor, budget, *block)
    for warning in facts["warnings"]:
        say(f"warning: {warning}")
    rows = matched_random(corridor, budget, params.pool, *block)
    SCHEDULE.write(snakemake.output.schedule, rows, facts)
