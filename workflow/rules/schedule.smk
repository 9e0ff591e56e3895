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
    params:
        corridor=plain(CONFIG.corridor),
        merge_s=CONFIG.merge.merge_s,
        horizon_s=CONFIG.horizon_s,
    resources:
        machine=1,
    script:
        "../../scripts/schedule_capture.py"


rule schedule_policy:
    input:
        requests="results/{run}/requests/regime={regime}/seed={seed}/policy=nosync/draw=0/part.parquet",
        telemetry="results/{run}/telemetry/regime={regime}/seed={seed}/policy=nosync/draw=0/part.parquet",
        learners="results/{run}/learners/seed={seed}/part.parquet",
        script="scripts/schedule_policy.py",
        library=lambda wildcards: library(
            "policies.observe",
            "policies.replay",
            f"policies.{POLICIES[wildcards.policy].policy}",
        ),
    output:
        schedule="results/{run}/schedule/regime={regime}/seed={seed}/policy={policy}/part.parquet",
    log:
        "results/{run}/logs/schedule_policy/regime={regime}/seed={seed}/policy={policy}.log",
    benchmark:
        "results/{run}/benchmarks/schedule_policy/regime={regime}/seed={seed}/policy={policy}.tsv"
    wildcard_constraints:
        policy="|".join(POLICIES),
    params:
        policy=lambda wildcards: POLICIES[wildcards.policy].policy,
        params=lambda wildcards: plain(POLICIES[wildcards.policy])["params"],
        signals=plain(CONFIG.signals),
        corridor=plain(CONFIG.corridor),
        merge_s=CONFIG.merge.merge_s,
        horizon_s=CONFIG.horizon_s,
    resources:
        machine=1,
    script:
        "../../scripts/schedule_policy.py"


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
    params:
        corridor=plain(CONFIG.corridor),
        merge_s=CONFIG.merge.merge_s,
        horizon_s=CONFIG.horizon_s,
        pool=CONFIG.controls.pool,
    resources:
        machine=1,
    script:
        "../../scripts/schedule_controls.py"


# A policy's budget is an outcome of its decisions, and draws are shared by budget: which
# measurements a block needs is known only here.
checkpoint budgets:
    input:
        schedules=expand(
            "results/{{run}}/schedule/regime={{regime}}/seed={{seed}}/policy={policy}/part.parquet",
            policy=CONFIG.claims,
        ),
        script="scripts/budgets.py",
        library=library("tables"),
    output:
        budgets="results/{run}/budgets/regime={regime}/seed={seed}.json",
    log:
        "results/{run}/logs/budgets/regime={regime}/seed={seed}.log",
    benchmark:
        "results/{run}/benchmarks/budgets/regime={regime}/seed={seed}.tsv"
    params:
        claims=CONFIG.claims,
    resources:
        machine=1,
    script:
        "../../scripts/budgets.py"
