# REQUIRED INPUTS   calibration measurements of a regime, its SLO threshold, arrivals, schedules
# OUTPUTS           model     = results/{run}/model/regime={regime}/model.json
#                   scores    = results/{run}/scores/tier_emulator/policy_{policy}.parquet
#                   controls  = results/{run}/scores/tier_emulator/controls.parquet
#                   agreement = results/{run}/agreement/regime={regime}/part.parquet
#                   transfer  = results/{run}/transfer/regime={regime}.json
# The emulated tier: a model of the sidecar out of its calibration captures, every policy and 1,000
# draws of its controls on it, and how far that is from the real replays of the run.


def captured(name, policy, file="part.parquet"):
    """A table of the calibration seeds' captures, as an input function of a regime."""
    return lambda wildcards: [
        f"results/{RUN}/{name}/regime={wildcards.regime}/seed={seed}/policy={policy}/draw=0/{file}"
        for seed in CONFIG.seeds.calibration
    ]


def judged_blocks(wildcards):
    return [(wildcards.regime, seed) for seed in CONFIG.seeds.judge]


def judged(name, which, file="part.parquet"):
    """A table of the replays of a regime's judged blocks, as an input function."""
    return lambda wildcards: tables(name, judged_blocks(wildcards), which, file)


def judged_schedules(which):
    return lambda wildcards: schedules_of(judged_blocks(wildcards), which)


def judged_replays(wildcards):
    return [
        (seed, policy, draw)
        for which in (known, drawn)
        for _, seed in judged_blocks(wildcards)
        for policy, draw in which(wildcards.regime, seed)
    ]


def decided_by(policy):
    """What decides a policy's schedules, and those whose budget it takes: itself last."""
    source = POLICIES[policy].params.get("budget_from")
    return [
        {"policy": entry.policy, "file": entry.file, "params": plain(entry)["params"]}
        for entry in [POLICIES[name] for name in [source, policy] if name]
    ]


def decided_by_files(wildcards):
    source = POLICIES[wildcards.policy].params.get("budget_from")
    return [
        file
        for name in [source, wildcards.policy]
        if name
        for file in policy_sources(name)
    ]


def model_settings(regime):
    """The settings that the captures of a regime's model are measured with."""
    return measured_with(regime, "probe")


# what every emulated replay is made with, and what a policy's decisions are made with besides
EMULATED_WITH = {
    "kinds": {name: regime.kind for name, regime in CONFIG.regimes.items()},
    "settings": {name: model_settings(name) for name in CONFIG.regimes},
    "corridor": plain(CONFIG.corridor),
    "merge_s": CONFIG.merge.merge_s,
    "horizon_s": CONFIG.horizon_s,
    "draws": CONFIG.emulator.draws,
}
DECIDED_WITH = {
    "policies": lambda wildcards: decided_by(wildcards.policy),
    "style": lambda wildcards: POLICIES[wildcards.policy].style,
    "signals": plain(CONFIG.signals),
}
# the tables that every job of the tier takes
EMULATED_FROM = {
    "models": expand(
        "results/{{run}}/model/regime={regime}/model.json", regime=CONFIG.regimes
    ),
    "thresholds": expand(
        "results/{{run}}/slo/regime={regime}.json", regime=CONFIG.regimes
    ),
    "emulated_arrivals": expand(
        "results/{{run}}/emulated_arrivals/role=judge/regime={regime}/part.parquet",
        regime=CONFIG.regimes,
    ),
    "arrivals": [
        f"results/{RUN}/arrivals/regime={regime}/seed={seed}/part.parquet"
        for regime, seed in JUDGED
    ],
    "captures": [
        f"results/{RUN}/requests/regime={regime}/seed={seed}/policy=nosync/draw=0/part.parquet"
        for regime, seed in JUDGED
    ],
}


rule calibrate:
    input:
        requests=captured("requests", "nosync"),
        telemetry=captured("telemetry", "nosync"),
        probe_telemetry=captured("telemetry", "probe"),
        manifests=captured("manifest", "nosync", "manifest.json"),
        probe_requests=captured("requests", "probe"),
        probe_merges=captured("merges", "probe"),
        probe_manifests=captured("manifest", "probe", "manifest.json"),
        script="scripts/calibrate.py",
        library=library("emulator", "protocol.calibrated", "protocol.provenance"),
    output:
        model="results/{run}/model/regime={regime}/model.json",
    log:
        "results/{run}/logs/calibrate/regime={regime}.log",
    benchmark:
        "results/{run}/benchmarks/calibrate/regime={regime}.tsv"
    resources:
        **MEDIUM,
        machine=1,
    params:
        seeds=CONFIG.seeds.calibration,
        settings=lambda wildcards: model_settings(wildcards.regime),
        nosync_settings=lambda wildcards: measured_with(wildcards.regime, "nosync"),
        limits={
            "max_num_seqs": CONFIG.sidecar.max_num_seqs,
            "max_model_len": CONFIG.sidecar.max_model_len,
            "max_num_batched_tokens": CONFIG.emulator.max_num_batched_tokens,
        },
    script:
        "../../scripts/calibrate.py"


# Arrivals of seeds that nothing measures: the further judge seeds, or the tune seeds (make explore).
rule emulated_arrivals:
    input:
        traces=lambda wildcards: traces_of(CONFIG.regimes[wildcards.regime]),
        # what a trace can serve beyond the seeds that are measured stands with any of its slices
        measured=lambda wildcards: (
            f"results/{RUN}/arrivals/regime={wildcards.regime}/seed={CONFIG.seeds.judge[0]}/part.parquet"
            if slice_seeds(CONFIG.regimes[wildcards.regime])
            and wildcards.role == "judge"
            else []
        ),
        script="scripts/emulated_arrivals.py",
        library=library("workload", "tables.seeded_arrivals"),
    output:
        arrivals="results/{run}/emulated_arrivals/role={role}/regime={regime}/part.parquet",
    log:
        "results/{run}/logs/emulated_arrivals/{role}/regime={regime}.log",
    benchmark:
        "results/{run}/benchmarks/emulated_arrivals/{role}/regime={regime}.tsv"
    wildcard_constraints:
        role="judge|tune",
    resources:
        **SHORT,
        machine=1,
    params:
        arrivals=lambda wildcards: plain(CONFIG.regimes[wildcards.regime].arrivals),
        tokens=lambda wildcards: plain(CONFIG.regimes[wildcards.regime].tokens),
        horizon_s=CONFIG.horizon_s,
        seeds=lambda wildcards: slice_seeds(CONFIG.regimes[wildcards.regime]),
        wanted=lambda wildcards: (
            CONFIG.emulator.seeds if wildcards.role == "judge" else CONFIG.seeds.tune
        ),
        context_tokens=CONFIG.sidecar.max_model_len,
    script:
        "../../scripts/emulated_arrivals.py"


rule emulate:
    input:
        **EMULATED_FROM,
        schedules=lambda wildcards: [
            schedule_of(regime, seed, wildcards.policy) for regime, seed in JUDGED
        ],
        # progress does not depend on the arrivals: seeds without learners of their own share these
        learners=[
            f"results/{RUN}/learners/seed={seed}/part.parquet"
            for seed in CONFIG.seeds.judge
        ],
        script="scripts/emulate.py",
        library=library("protocol.emulated", "policies.observe", "policies.replay"),
        policy=decided_by_files,
    output:
        scores="results/{run}/scores/tier_emulator/policy_{policy}.parquet",
    log:
        "results/{run}/logs/emulate/{policy}.log",
    benchmark:
        "results/{run}/benchmarks/emulate/{policy}.tsv"
    wildcard_constraints:
        policy="|".join(POLICIES),
    resources:
        **EMULATION,
        machine=1,
    params:
        **EMULATED_WITH,
        **DECIDED_WITH,
        role="judge",
        measured=JUDGED,
    script:
        "../../scripts/emulate.py"


# What the policies of a block share: no merges, and the draws of every budget.
rule emulate_controls:
    input:
        **EMULATED_FROM,
        script="scripts/emulate.py",
        library=library("protocol.emulated"),
    output:
        scores="results/{run}/scores/tier_emulator/controls.parquet",
    log:
        "results/{run}/logs/emulate_controls.log",
    benchmark:
        "results/{run}/benchmarks/emulate_controls.tsv"
    resources:
        **SHARED_EMULATION,
        machine=1,
    params:
        **EMULATED_WITH,
        style="blocking",
        role="judge",
        measured=JUDGED,
    script:
        "../../scripts/emulate.py"


rule agreement:
    input:
        model="results/{run}/model/regime={regime}/model.json",
        threshold="results/{run}/slo/regime={regime}.json",
        arrivals=lambda wildcards: [
            f"results/{RUN}/arrivals/regime={regime}/seed={seed}/part.parquet"
            for regime, seed in judged_blocks(wildcards)
        ],
        scores=lambda wildcards: [
            f"results/{RUN}/scores/tier_vllm/regime_{regime}/seed_{seed}.parquet"
            for regime, seed in judged_blocks(wildcards)
        ],
        requests=judged("requests", known),
        drawn_requests=judged("requests", drawn),
        schedules=judged_schedules(known),
        drawn_schedules=judged_schedules(drawn),
        script="scripts/agreement.py",
        library=library("protocol.agreement", "protocol.emulated"),
    output:
        agreement=report(
            "results/{run}/agreement/regime={regime}/part.parquet",
            caption="../report/agreement.rst",
            category="Tables",
            labels={"table": "agreement", "regime": "{regime}", "seed": "all"},
        ),
        summary="results/{run}/agreement_summary/regime={regime}.json",
    log:
        "results/{run}/logs/agreement/regime={regime}.log",
    benchmark:
        "results/{run}/benchmarks/agreement/regime={regime}.tsv"
    resources:
        **MEDIUM,
        machine=1,
    params:
        replays=judged_replays,
        seeds=CONFIG.seeds.judge,
        styles={name: entry.style for name, entry in POLICIES.items()},
        settings=lambda wildcards: model_settings(wildcards.regime),
        merge_s=CONFIG.merge.merge_s,
    script:
        "../../scripts/agreement.py"


rule transfer:
    input:
        model="results/{run}/model/regime={regime}/model.json",
        threshold="results/{run}/slo/regime={regime}.json",
        arrivals=lambda wildcards: [
            f"results/{RUN}/arrivals/regime={wildcards.regime}/seed={seed}/part.parquet"
            for seed in CONFIG.seeds.calibration
        ],
        nosync=captured("requests", "nosync"),
        requests=captured("requests", "probe"),
        merges=captured("merges", "probe"),
        drawn_arrivals=lambda wildcards: [
            f"results/{RUN}/arrivals/regime={regime}/seed={seed}/part.parquet"
            for regime, seed in judged_blocks(wildcards)
            for _ in drawn(regime, seed)
        ],
        drawn_nosync=lambda wildcards: [
            f"results/{RUN}/requests/regime={regime}/seed={seed}/policy=nosync/draw=0/part.parquet"
            for regime, seed in judged_blocks(wildcards)
            for _ in drawn(regime, seed)
        ],
        drawn_requests=judged("requests", drawn),
        drawn_merges=judged("merges", drawn),
        script="scripts/transfer.py",
        library=library("protocol.transfer", "protocol.calibrated", "emulator"),
    output:
        transfer="results/{run}/transfer/regime={regime}.json",
    log:
        "results/{run}/logs/transfer/regime={regime}.log",
    benchmark:
        "results/{run}/benchmarks/transfer/regime={regime}.tsv"
    resources:
        **MEDIUM,
        machine=1,
    params:
        settings=lambda wildcards: model_settings(wildcards.regime),
        merge_s=CONFIG.merge.merge_s,
        delta=CONFIG.protocol.transfer_delta,
        tolerance=CONFIG.protocol.transfer_tolerance,
    script:
        "../../scripts/transfer.py"


def stored(*names):
    """Files of a run, as an input function: absolute, so that no rule is asked to make them."""

    def paths(wildcards):
        found = [Path(name).absolute() for name in names]
        for path in found:
            if not path.exists():
                raise WorkflowError(
                    f"{path.relative_to(Path.cwd())}: not there; explore measures and trains "
                    "nothing, it takes a run's model, threshold and learners: make that run first"
                )
        return [str(path) for path in found]

    return paths


# what `make explore` takes of a run that is there, and the tune seeds
EXPLORED_FROM = {
    "models": stored(
        *(
            f"results/{RUN}/model/regime={regime}/model.json"
            for regime in CONFIG.regimes
        )
    ),
    "thresholds": stored(
        *(f"results/{RUN}/slo/regime={regime}.json" for regime in CONFIG.regimes)
    ),
    "emulated_arrivals": expand(
        "results/{{run}}/emulated_arrivals/role=tune/regime={regime}/part.parquet",
        regime=CONFIG.regimes,
    ),
}


# What a policy's author iterates with: the tune seeds, on a model that is there.
rule explore_policy:
    input:
        **EXPLORED_FROM,
        # progress does not depend on the arrivals, and new learners take minutes to train
        learners=stored(
            *(
                f"results/{RUN}/learners/seed={seed}/part.parquet"
                for seed in CONFIG.seeds.judge
            )
        ),
        script="scripts/emulate.py",
        library=library("protocol.emulated", "policies.observe", "policies.replay"),
        policy=decided_by_files,
    output:
        scores="results/{run}/explore/policy_{policy}.parquet",
    log:
        "results/{run}/logs/explore/{policy}.log",
    benchmark:
        "results/{run}/benchmarks/explore/{policy}.tsv"
    wildcard_constraints:
        policy="|".join(POLICIES),
    resources:
        **EMULATION,
        machine=1,
    params:
        **EMULATED_WITH,
        **DECIDED_WITH,
        role="tune",
        measured=[],
    script:
        "../../scripts/emulate.py"


rule explore_controls:
    input:
        **EXPLORED_FROM,
        script="scripts/emulate.py",
        library=library("protocol.emulated"),
    output:
        scores="results/{run}/explore/controls.parquet",
    log:
        "results/{run}/logs/explore_controls.log",
    benchmark:
        "results/{run}/benchmarks/explore_controls.tsv"
    resources:
        **SHARED_EMULATION,
        machine=1,
    params:
        **EMULATED_WITH,
        style="blocking",
        role="tune",
        measured=[],
    script:
        "../../scripts/emulate.py"


rule explore:
    input:
        controls=f"results/{RUN}/explore/controls.parquet",
        scores=expand(
            "results/{run}/explore/policy_{policy}.parquet", run=RUN, policy=POLICIES
        ),
        script="scripts/explore.py",
        library=library("protocol.explore"),
    output:
        table=f"results/{RUN}/explore/table.txt",
    log:
        f"results/{RUN}/logs/explore.log",
    benchmark:
        f"results/{RUN}/benchmarks/explore.tsv"
    resources:
        **SHORT,
        machine=1,
    params:
        policies=list(POLICIES),
        seeds=plain(CONFIG.seeds),
    script:
        "../../scripts/explore.py"
