"""A schedule and a style -> how well a real DiLoCo run trains that merges when and as they say."""

from pathlib import Path

from safesync.job import job
from safesync.learners.settings import Training
from safesync.learners.train import train
from safesync.placement import Corridor
from safesync.tables.schedule import SCHEDULE
from safesync.tables.training import TRAINING

params, wildcards = snakemake.params, snakemake.wildcards
replay = f"{wildcards.policy} draw {wildcards.draw}, training seed {wildcards.training_seed}"
with job(f"train_on_schedule {replay}", snakemake.log[0]) as say:
    schedule = SCHEDULE.read(snakemake.input.schedule)
    merges = schedule.loc[schedule["draw"] == int(wildcards.draw), "step"].tolist()
    corridor = Corridor(**params.corridor, merge_s=params.merge_s, horizon_s=params.horizon_s)
    key = {
        "regime": wildcards.regime,
        "seed": int(wildcards.seed),
        "policy": wildcards.policy,
        "draw": int(wildcards.draw),
        "training_seed": int(wildcards.training_seed),
    }
    rows, facts = train(
        Training(**params.training),
        Path(f"results/{wildcards.run}/.training/schedule").joinpath(*map(str, key.values())),
        seed=key["training_seed"],
        data=tuple(params.data),
        # learners do no step during a merge; overlapped ones would, but all runs have as many
        steps=params.steps - len(merges) * corridor.grid.pause,
        merges=merges,
        decay_steps=params.steps,
        **params.spread,
        say=say,
    )
    facts |= key | {"style": params.style}
    TRAINING.write(snakemake.output.training, rows[TRAINING.schema.names], facts)
