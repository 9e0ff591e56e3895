"""Seed -> training progress of every island, from the built-in curve."""

from safesync.job import job
from safesync.learners.curve import builtin_curve
from safesync.tables.learners import LEARNERS

params = snakemake.params
with job("learner_curve", snakemake.log[0]):
    seed = int(snakemake.wildcards.seed)
    rows = builtin_curve(params.islands, params.steps, seed, params.step_s)
    LEARNERS.write(snakemake.output.learners, rows, {"source": "built-in curve", "seed": seed})
