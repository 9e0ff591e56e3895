"""Schedules of the claims in a block -> the budgets that their controls need."""

from safesync.job import job
from safesync.policies.schedule import first_draw
from safesync.tables import write_document
from safesync.tables.schedule import SCHEDULE

with job("budgets", snakemake.log[0]):
    sizes = {
        claim: len(first_draw(SCHEDULE.read(path)))
        for claim, path in zip(snakemake.params.claims, snakemake.input.schedules, strict=True)
    }
    write_document(
        snakemake.output.budgets, {"claims": sizes, "budgets": sorted(set(sizes.values()))}
    )
