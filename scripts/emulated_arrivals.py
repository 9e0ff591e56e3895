"""A regime of the config and seeds that nothing measures -> the arrival traces of all of them."""

import pandas as pd
from pydantic import TypeAdapter

from safesync.job import job
from safesync.tables.arrivals import ARRIVALS
from safesync.tables.seeded_arrivals import SEEDED_ARRIVALS
from safesync.workload.cut import free_slices
from safesync.workload.generate import generate
from safesync.workload.source import Source
from safesync.workload.tokens import TokenLengths

params, found, wildcards = snakemake.params, snakemake.input, snakemake.wildcards
with job("emulated_arrivals", snakemake.log[0]) as say:
    wanted, taken, missing = list(params.wanted), params.seeds, []
    if found.measured:
        _, facts = ARRIVALS.read_with_metadata(found.measured)
        free = free_slices(facts["trace"], len(taken))
        if free < len(wanted):
            missing.append(
                f"the trace has slices of its own for {free} of {len(wanted)} seeds that are only "
                "emulated"
            )
        wanted = wanted[:free]
    if taken is not None:
        taken = [*taken, *(seed for seed in wanted if seed not in taken)]
    rows = []
    for done, seed in enumerate(wanted):
        arrivals, _ = generate(
            TypeAdapter(Source).validate_python(params.arrivals),
            TokenLengths(**params.tokens),
            params.horizon_s,
            wildcards.regime,
            seed,
            seeds=taken,
            context_tokens=params.context_tokens,
        )
        rows.append(arrivals.assign(seed=seed))
        if found.traces:
            say(f"{done + 1} of {len(wanted)} slices")
    for sentence in missing:
        say(sentence)
    SEEDED_ARRIVALS.write(
        snakemake.output.arrivals,
        pd.concat(rows, ignore_index=True) if rows else SEEDED_ARRIVALS.empty(),
        {"seeds": wanted, "missing": missing},
    )
