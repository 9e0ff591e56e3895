"""A regime of the config and a seed -> the arrival trace of that block."""

from pydantic import TypeAdapter

from safesync.job import in_tenths, job
from safesync.tables.arrivals import ARRIVALS
from safesync.workload.generate import generate
from safesync.workload.source import Source
from safesync.workload.tokens import TokenLengths

params, wildcards = snakemake.params, snakemake.wildcards
with job("generate_arrivals", snakemake.log[0]) as say:
    rows, facts = generate(
        TypeAdapter(Source).validate_python(params.arrivals),
        TokenLengths(**params.tokens),
        params.horizon_s,
        wildcards.regime,
        int(wildcards.seed),
        seeds=params.seeds,
        context_tokens=params.context_tokens,
        progress=in_tenths(lambda tenth: say(f"{tenth}0 % of the trace read")),
    )
    say(f"{len(rows)} requests in {params.horizon_s:g} s")
    if facts["trace"]:
        for note in facts["trace"]["notes"]:
            say(f"{facts['trace']['path']}: {note}")
    ARRIVALS.write(snakemake.output.arrivals, rows, facts)
