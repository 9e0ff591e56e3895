"""A block's nosync capture and its learners -> the merges that a policy decides on."""

from safesync.job import job
from safesync.placement import Corridor
from safesync.policies import find_policy
from safesync.policies.observe import observe_block
from safesync.policies.replay import decide_schedule
from safesync.policies.schedule import first_draw, repeated
from safesync.tables.learners import LEARNERS
from safesync.tables.requests import REQUESTS
from safesync.tables.schedule import SCHEDULE
from safesync.tables.telemetry import TELEMETRY

params, wildcards, found = snakemake.params, snakemake.wildcards, snakemake.input
with job(f"schedule_policy {wildcards.policy}", snakemake.log[0]) as say:
    policy = find_policy(params.policy, params.file)
    rows, facts = decide_schedule(
        policy(policy.Parameters(**params.params)),
        Corridor(**params.corridor, merge_s=params.merge_s, horizon_s=params.horizon_s),
        observe_block(
            REQUESTS.read(found.requests),
            TELEMETRY.read(found.telemetry),
            LEARNERS.read(found.learners),
            **params.signals,
        ),
        regime=wildcards.regime,
        seed=int(wildcards.seed),
        reference=first_draw(SCHEDULE.read(found.reference)) if found.get("reference") else None,
    )
    for warning in facts["warnings"]:
        say(f"warning: {warning}")
    SCHEDULE.write(snakemake.output.schedule, repeated(rows, params.repeats), facts)
