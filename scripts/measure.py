"""Arrivals and schedule -> requests, merges, telemetry and manifest of one real measurement."""

import os
import platform
from pathlib import Path

from safesync import config
from safesync.job import job
from safesync.plan import progress
from safesync.sidecar.measure import Measurement

wildcards, params = snakemake.wildcards, snakemake.params
settings = params.settings
identity = {
    "run": wildcards.run,
    "regime": wildcards.regime,
    "seed": int(wildcards.seed),
    "policy": wildcards.policy,
    "draw": int(wildcards.draw),
}
name = "measure {regime} seed {seed} {policy} draw {draw}".format(**identity)

with job(name, snakemake.log[0]) as say:
    # params leave out what can't change a measurement, so that editing it reruns none
    whole = config.load(snakemake.config)
    say(progress(whole, Path("results")))
    Measurement(
        identity=identity,
        horizon_s=settings["horizon_s"],
        sidecar=whole.sidecar.model_dump(mode="json"),
        model_name=settings["model"],
        trust_remote_code=whole.model.trust_remote_code,
        cores=params.cores,
        client=settings["client"],
        merge=settings["merge"],
        background=settings["background"],
        arrivals=Path(snakemake.input.arrivals),
        schedule=Path(snakemake.input.schedule),
        model=Path(snakemake.input.model).with_suffix(""),
        requests=Path(snakemake.output.requests),
        merges=Path(snakemake.output.merges),
        telemetry=Path(snakemake.output.telemetry),
        manifest=Path(snakemake.output.manifest),
        # on a cluster two nodes may give the same number
        scratch=Path(f"results/{wildcards.run}/.scratch") / f"{platform.node()}-{os.getpid()}",
        log_folder=Path(snakemake.log[0]).parent,
    ).run(say)
