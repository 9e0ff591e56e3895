"""A claim's schedule in a block -> its own gaps in other orders."""

from safesync.job import job
from safesync.placement import Corridor
from safesync.policies.controls import matched_spacing, spacing_facts
from safesync.policies.schedule import first_draw, repeated
from safesync.tables.schedule import SCHEDULE

params, wildcards = snakemake.params, snakemake.wildcards
with job(f"schedule_spacing {wildcards.of}", snakemake.log[0]) as say:
    corridor = Corridor(**params.corridor, merge_s=params.merge_s, horizon_s=params.horizon_s)
    block = (wildcards.regime, int(wildcards.seed))
    own = first_draw(SCHEDULE.read(snakemake.input.schedule))
    gaps = corridor.gaps_from_starts(own["start_s"].to_numpy())
    facts = spacing_facts(corridor, gaps, wildcards.of, *block)
    broken = corridor.feasible(gaps)
    if broken is None:
        rows = matched_spacing(corridor, gaps, params.pool, *block)
    else:
        # the claim is refused for that; a run that stopped here could not say so
        facts["warnings"].append(f"other orders of {wildcards.of} are its own: {broken}")
        rows = repeated(own.assign(reason="control"), params.pool)
    for warning in facts["warnings"]:
        say(f"warning: {warning}")
    SCHEDULE.write(snakemake.output.schedule, rows, facts)
