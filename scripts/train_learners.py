"""Seed -> training progress of every island, from a real DiLoCo run with a fixed period."""

from pathlib import Path

from safesync.job import job
from safesync.learners.settings import Training
from safesync.learners.train import train
from safesync.tables.learners import LEARNERS

params, wildcards = snakemake.params, snakemake.wildcards
with job(f"train_learners seed {wildcards.seed}", snakemake.log[0]) as say:
    rows, facts = train(
        Training(**params.training),
        Path(f"results/{wildcards.run}/.training/learners/seed={wildcards.seed}"),
        seed=int(wildcards.seed),
        data=tuple(params.data),
        steps=params.steps,
        merges=range(params.h, params.steps, params.h),
        decay_steps=params.steps,
        say=say,
    )
    LEARNERS.write(snakemake.output.learners, rows, facts)
