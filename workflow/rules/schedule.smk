# REQUIRED INPUTS   requests, telemetry = the block's nosync capture (policies only)
#                   arrivals, learners  = what the policy may look at (policies only)
# OUTPUTS           schedule = results/{run}/schedule/regime={regime}/seed={seed}/policy={policy}/part.parquet
#                   budgets  = results/{run}/budgets/regime={regime}/seed={seed}.json
# Every schedule is computed once, byte-stable, and replayed by every engine.


rule schedule_capture:
    input:
        script="scripts/schedule_capture.py",
        library=library("placement", "policies.controls", "policies.nosync"),
    output:
        schedule="results/{run}/schedule/regime={regime}/seed={seed}/policy={policy}/part.parquet",
    log:
        "results/{run}/logs/schedule_capture/regime={regime}/seed={seed}/policy={policy}.log",
    benchmark:
        "results/{run}/benchmarks/schedule_capture/regime={regime}/seed={seed}/policy={policy}.tsv"
    wildcard_constraints:
        policy="nosync|probe",
    resources:
        **SHORT,
        machine=1,
    params:
        corridor=plain(CONFIG.corridor),
        merge_s=CONFIG.merge.merge_s,
        horizon_s=CONFIG.horizon_s,
    script:
        "../../scripts/schedule_capture.py"


rule schedule_policy:
    input:
        requests="results/{run}/requests/regime={regime}/seed={seed}/policy=nosync/draw=0/part.parquet",
        telemetry="results/{run}/telemetry/regime={regime}/seed={seed}/policy=nosync/draw=0/part.parquet",
        learners="results/{run}/learners/seed={seed}/part.parquet",
        reference=budget_source,
        script="scripts/schedule_policy.py",
        library=library("policies.observe", "policies.replay"),
        policy=lambda wildcards: policy_sources(wildcards.policy),
    output:
        schedule="results/{run}/schedule/regime={regime}/seed={seed}/policy={policy}/part.parquet",
    log:
        "results/{run}/logs/schedule_policy/regime={regime}/seed={seed}/policy={policy}.log",
    benchmark:
        "results/{run}/benchmarks/schedule_policy/regime={regime}/seed={seed}/policy={policy}.tsv"
    wildcard_constraints:
        policy="|".join(POLICIES),
    resources:
        **SHORT,
        machine=1,
    params:
        policy=lambda wildcards: POLICIES[wildcards.policy].policy,
        file=lambda wildcards: POLICIES[wildcards.policy].file,
        params=lambda wildcards: plain(POLICIES[wildcards.policy])["params"],
        repeats=lambda wildcards: repeats(wildcards.policy),
        signals=plain(CONFIG.signals),
        corridor=plain(CONFIG.corridor),
        merge_s=CONFIG.merge.merge_s,
        horizon_s=CONFIG.horizon_s,
    script:
        "../../scripts/schedule_policy.py"


# A deployable policy sees only the past: everything after a cut is exchanged, and its decisions up
# to the cut must stay the same.
rule audit_causality:
    input:
        requests=[
            f"results/{RUN}/requests/regime={regime}/seed={seed}/policy=nosync/draw=0/part.parquet"
            for regime, seed in JUDGED
        ],
        telemetry=[
            f"results/{RUN}/telemetry/regime={regime}/seed={seed}/policy=nosync/draw=0/part.parquet"
            for regime, seed in JUDGED
        ],
        learners=[
            f"results/{RUN}/learners/seed={seed}/part.parquet" for _, seed in JUDGED
        ],
        script="scripts/audit_causality.py",
        library=library("policies.causality", "policies.observe"),
        policy=lambda wildcards: policy_sources(wildcards.policy),
    output:
        audit="results/{run}/causality/{policy}.json",
    log:
        "results/{run}/logs/audit_causality/{policy}.log",
    benchmark:
        "results/{run}/benchmarks/audit_causality/{policy}.tsv"
    wildcard_constraints:
        policy="|".join(POLICIES),
    resources:
        **MEDIUM,
        machine=1,
    params:
        blocks=JUDGED,
        policy=lambda wildcards: POLICIES[wildcards.policy].policy,
        file=lambda wildcards: POLICIES[wildcards.policy].file,
        params=lambda wildcards: plain(POLICIES[wildcards.policy])["params"],
        signals=plain(CONFIG.signals),
        corridor=plain(CONFIG.corridor),
        merge_s=CONFIG.merge.merge_s,
        horizon_s=CONFIG.horizon_s,
    script:
        "../../scripts/audit_causality.py"


# All draws that could be asked for are written at once, so that measuring one more draw
# changes no file that the measured ones depend on.
rule schedule_controls:
    input:
        script="scripts/schedule_controls.py",
        library=library("placement", "policies.controls"),
    output:
        schedule="results/{run}/schedule/regime={regime}/seed={seed}/policy=matched_random_{budget}/part.parquet",
    log:
        "results/{run}/logs/schedule_controls/regime={regime}/seed={seed}/budget={budget}.log",
    benchmark:
        "results/{run}/benchmarks/schedule_controls/regime={regime}/seed={seed}/budget={budget}.tsv"
    resources:
        **SHORT,
        machine=1,
    params:
        corridor=plain(CONFIG.corridor),
        merge_s=CONFIG.merge.merge_s,
        horizon_s=CONFIG.horizon_s,
        pool=CONFIG.controls.pool,
    script:
        "../../scripts/schedule_controls.py"


# The gaps of a claim in other orders, for the same reason as many as could be asked for.
rule schedule_spacing:
    input:
        schedule="results/{run}/schedule/regime={regime}/seed={seed}/policy={of}/part.parquet",
        script="scripts/schedule_spacing.py",
        library=library("placement", "policies.controls"),
    output:
        schedule="results/{run}/schedule/regime={regime}/seed={seed}/policy=matched_spacing_{of}/part.parquet",
    log:
        "results/{run}/logs/schedule_spacing/regime={regime}/seed={seed}/of={of}.log",
    benchmark:
        "results/{run}/benchmarks/schedule_spacing/regime={regime}/seed={seed}/of={of}.tsv"
    wildcard_constraints:
        of="|".join(CONFIG.claims),
    resources:
        **SHORT,
        machine=1,
    params:
        corridor=plain(CONFIG.corridor),
        merge_s=CONFIG.merge.merge_s,
        horizon_s=CONFIG.horizon_s,
        pool=CONFIG.controls.pool,
    script:
        "../../scripts/schedule_spacing.py"


# A policy's budget is an outcome of its decisions, and draws are shared by budget: which
# measurements a block needs is known only here.
checkpoint budgets:
    input:
        schedules=expand(
            "results/{{run}}/schedule/regime={{regime}}/seed={{seed}}/policy={policy}/part.parquet",
            policy=CONFIG.claims,
        ),
        script="scripts/budgets.py",
        library=library("policies.schedule"),
    output:
        budgets="results/{run}/budgets/regime={regime}/seed={seed}.json",
    log:
        "results/{run}/logs/budgets/regime={regime}/seed={seed}.log",
    benchmark:
        "results/{run}/benchmarks/budgets/regime={regime}/seed={seed}.tsv"
    resources:
        **SHORT,
        machine=1,
    params:
        claims=CONFIG.claims,
    script:
        "../../scripts/budgets.py"
