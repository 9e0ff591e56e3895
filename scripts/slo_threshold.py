"""Config, or the calibration seeds' nosync captures -> the SLO threshold of a regime."""

from safesync.job import job
from safesync.protocol.threshold import auto_threshold, fixed_threshold
from safesync.tables import write_document
from safesync.tables.requests import REQUESTS

slo, regime = snakemake.params.slo, snakemake.wildcards.regime
with job("slo_threshold", snakemake.log[0]) as say:
    if slo["threshold_s"]:
        document = fixed_threshold(regime, slo["metric"], slo["threshold_s"])
    else:
        captures = zip(snakemake.params.seeds, snakemake.input.requests, strict=True)
        document = auto_threshold(
            regime,
            slo["metric"],
            {seed: REQUESTS.read(path) for seed, path in captures},
            quantile=slo["quantile"],
            multiple=slo["multiple"],
        )
    say(document["sentence"])
    write_document(snakemake.output.threshold, document)
