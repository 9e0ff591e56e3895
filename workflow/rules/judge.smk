# REQUIRED INPUTS   every measurement of a block, the SLO threshold of its regime
# OUTPUTS           threshold = results/{run}/slo/regime={regime}.json
#                   scores    = results/{run}/scores/tier_vllm/regime_{regime}/seed_{seed}.parquet
#                   verdict   = results/{run}/verdict.json
from safesync.plan import OVERHEAD_S


rule slo_threshold:
    input:
        requests=lambda wildcards: (
            []
            if CONFIG.slo.threshold_s
            else [
                f"results/{RUN}/requests/regime={wildcards.regime}/seed={seed}/policy=nosync/draw=0/part.parquet"
                for seed in CONFIG.seeds.calibration
            ]
        ),
        script="scripts/slo_threshold.py",
        library=library("protocol.threshold"),
    output:
        threshold="results/{run}/slo/regime={regime}.json",
    log:
        "results/{run}/logs/slo_threshold/regime={regime}.log",
    benchmark:
        "results/{run}/benchmarks/slo_threshold/regime={regime}.tsv"
    resources:
        **SHORT,
        machine=1,
    params:
        slo=plain(CONFIG.slo),
        seeds=CONFIG.seeds.calibration,
    script:
        "../../scripts/slo_threshold.py"


rule score:
    input:
        requests=lambda wildcards: tables("requests", block(wildcards), known),
        merges=lambda wildcards: tables("merges", block(wildcards), known),
        manifests=lambda wildcards: tables(
            "manifest", block(wildcards), known, "manifest.json"
        ),
        schedules=lambda wildcards: schedules_of(block(wildcards), known),
        drawn_requests=lambda wildcards: tables("requests", block(wildcards), drawn),
        drawn_merges=lambda wildcards: tables("merges", block(wildcards), drawn),
        drawn_manifests=lambda wildcards: tables(
            "manifest", block(wildcards), drawn, "manifest.json"
        ),
        drawn_schedules=lambda wildcards: schedules_of(block(wildcards), drawn),
        arrivals="results/{run}/arrivals/regime={regime}/seed={seed}/part.parquet",
        threshold="results/{run}/slo/regime={regime}.json",
        script="scripts/score.py",
        library=library(
            "protocol.scores", "protocol.provenance", "protocol.blocks", "placement"
        ),
    output:
        scores=report(
            "results/{run}/scores/tier_vllm/regime_{regime}/seed_{seed}.parquet",
            caption="../report/scores.rst",
            category="Tables",
            labels={"table": "scores", "regime": "{regime}", "seed": "{seed}"},
        ),
    log:
        "results/{run}/logs/score/regime={regime}/seed={seed}.log",
    benchmark:
        "results/{run}/benchmarks/score/regime={regime}/seed={seed}.tsv"
    resources:
        **SHORT,
        machine=1,
    params:
        replays=lambda wildcards: replays(*block(wildcards)[0]),
        measured_with=lambda wildcards: [
            measured_with(wildcards.regime, policy)
            for policy, _ in replays(*block(wildcards)[0])
        ],
        kind=lambda wildcards: CONFIG.regimes[wildcards.regime].kind,
        role=lambda wildcards: role(wildcards.seed),
        corridor=plain(CONFIG.corridor),
        merge_s=CONFIG.merge.merge_s,
        horizon_s=CONFIG.horizon_s,
        end_tolerance_s=CONFIG.merge.end_tolerance_s,
        protocol=plain(CONFIG.protocol),
    script:
        "../../scripts/score.py"


# The tier that needs no replay: each schedule's place among all feasible ones, on the capture.
rule overlap:
    input:
        requests="results/{run}/requests/regime={regime}/seed={seed}/policy=nosync/draw=0/part.parquet",
        schedules=expand(
            "results/{{run}}/schedule/regime={{regime}}/seed={{seed}}/policy={policy}/part.parquet",
            policy=POLICIES,
        ),
        script="scripts/overlap.py",
        library=library("protocol.overlap", "policies.schedule"),
    output:
        overlap=report(
            "results/{run}/overlap/regime_{regime}/seed_{seed}.parquet",
            caption="../report/overlap.rst",
            category="Tables",
            labels={"table": "overlap", "regime": "{regime}", "seed": "{seed}"},
        ),
    log:
        "results/{run}/logs/overlap/regime={regime}/seed={seed}.log",
    benchmark:
        "results/{run}/benchmarks/overlap/regime={regime}/seed={seed}.tsv"
    resources:
        **SHORT,
        machine=1,
    params:
        policies=list(POLICIES),
        kind=lambda wildcards: CONFIG.regimes[wildcards.regime].kind,
        corridor=plain(CONFIG.corridor),
        merge_s=CONFIG.merge.merge_s,
        horizon_s=CONFIG.horizon_s,
    script:
        "../../scripts/overlap.py"


rule judge:
    input:
        overlap=[
            f"results/{RUN}/overlap/regime_{regime}/seed_{seed}.parquet"
            for regime, seed in JUDGED
        ],
        audits=expand("results/{{run}}/causality/{policy}.json", policy=POLICIES),
        scores=[
            f"results/{RUN}/scores/tier_vllm/regime_{regime}/seed_{seed}.parquet"
            for regime, seed in BLOCKS
        ],
        thresholds=expand(
            "results/{{run}}/slo/regime={regime}.json", regime=CONFIG.regimes
        ),
        emulated=[
            "results/{run}/scores/tier_emulator/controls.parquet",
            *expand(
                "results/{{run}}/scores/tier_emulator/policy_{policy}.parquet",
                policy=POLICIES,
            ),
        ],
        models=expand(
            "results/{{run}}/model/regime={regime}/model.json", regime=CONFIG.regimes
        ),
        agreements=expand(
            "results/{{run}}/agreement_summary/regime={regime}.json",
            regime=CONFIG.regimes,
        ),
        transfers=expand(
            "results/{{run}}/transfer/regime={regime}.json", regime=CONFIG.regimes
        ),
        trainings=trainings,
        script="scripts/judge.py",
        library=library(
            "protocol.verdict",
            "protocol.causality",
            "protocol.transfer",
            "protocol.parity",
        ),
    output:
        verdict=report(
            "results/{run}/verdict.json",
            caption="../report/verdict.rst",
            category="Verdict",
            labels={"result": "document, for machines"},
        ),
    log:
        "results/{run}/logs/judge.log",
    benchmark:
        "results/{run}/benchmarks/judge.tsv"
    resources:
        **MEDIUM,
        machine=1,
    params:
        protocol=plain(CONFIG.protocol),
        parity_margin=CONFIG.parity.margin,
        regimes=list(CONFIG.regimes),
        claims=CONFIG.claims,
        baselines=[
            name for name, entry in POLICIES.items() if entry.policy == "fixed_h"
        ],
        seeds=plain(CONFIG.seeds),
        horizon_s=CONFIG.horizon_s,
        replay_s=CONFIG.horizon_s + OVERHEAD_S,
    script:
        "../../scripts/judge.py"
