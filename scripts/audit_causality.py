"""A policy and the captures of all judged blocks -> whether it ever looked ahead."""

from safesync.job import job
from safesync.placement import Corridor
from safesync.policies import find_policy
from safesync.policies.causality import audit
from safesync.policies.observe import observe_block
from safesync.tables import write_document
from safesync.tables.learners import LEARNERS
from safesync.tables.requests import REQUESTS
from safesync.tables.telemetry import TELEMETRY

params, found, policy_id = snakemake.params, snakemake.input, snakemake.wildcards.policy
with job(f"audit_causality {policy_id}", snakemake.log[0]) as say:
    policy = find_policy(params.policy, params.file)
    parameters = policy.Parameters(**params.params)
    corridor = Corridor(**params.corridor, merge_s=params.merge_s, horizon_s=params.horizon_s)
    audits = []
    blocks = zip(params.blocks, found.requests, found.telemetry, found.learners, strict=True)
    for (regime, seed), requests, telemetry, learners in blocks:
        if not policy(parameters).deployable:
            continue
        trace = observe_block(
            REQUESTS.read(requests),
            TELEMETRY.read(telemetry),
            LEARNERS.read(learners),
            **params.signals,
        )
        found_out = audit(lambda: policy(parameters), corridor, trace, regime=regime, seed=seed)
        say(f"{regime}, seed {seed}: {found_out.sentence}")
        audits.append({"regime": regime, "seed": seed, **found_out.document()})
    write_document(snakemake.output.audit, {"policy": policy_id, "blocks": audits})
