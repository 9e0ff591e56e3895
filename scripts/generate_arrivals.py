"""A regime of the config and a seed -> the arrival trace of that block."""

from pydantic import TypeAdapter

from safesync.job import job
from safesync.tables.arrivals import ARRIVALS
from safesync.workload.families import Family
from safesync.workload.generate import generate
from safesync.workload.tokens import TokenLengths

params, wildcards = snakemake.params, snakemake.wildcards
with job("generate_arrivals", snakemake.log[0]) as say:
    rows, facts = generate(
        TypeAdapter(Family).validate_python(params.arrivals),
        TokenLengths(**params.tokens),
        params.horizon_s,
        wildcards.regime,
        int(wildcards.seed),
    )
    say(f"{len(rows)} requests in {params.horizon_s:g} s")
    ARRIVALS.write(snakemake.output.arrivals, rows, facts)
