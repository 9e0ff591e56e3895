# REQUIRED INPUTS   none (train_learners); schedule (train_on_schedule)
# OUTPUTS           learners = results/{run}/learners/seed={seed}/part.parquet
#                   training = results/{run}/training/regime=…/seed=…/policy=…/draw=…/training_seed=…/part.parquet
# Real DiLoCo runs of a small model. A run that was stopped is taken up at its last merge.
from safesync.learners.corpus import SLOTS, slot_of

TRAINED_WITH = {
    key: value for key, value in plain(CONFIG.learners).items() if key != "h"
}
INNER_STEPS = round(CONFIG.horizon_s / CONFIG.corridor.step_s)


def data_of(role, seeds, seed):
    """The part of the corpus that a seed trains on, and how many parts there are."""
    if int(seed) not in seeds:
        raise WorkflowError(
            f"seed {seed} is not among the config's {role} seeds {seeds}"
        )
    return slot_of(role, seeds.index(int(seed))), SLOTS


def spread(policy):
    """How a policy's merges reach the islands that train on its schedule.

    A throttled merge holds the islands for its window as a blocking one does, and trains alike. An
    overlapped one merges the fragments that it merges when it is measured.
    """
    if style_of(policy) != "overlapped":
        return {"fragments": 1, "delay_steps": 0}
    return {
        "fragments": -(-CONFIG.merge.parameters // CONFIG.merge.fragment_parameters),
        "delay_steps": CONFIG.parity.delay_steps,
    }


def trainings(wildcards):
    """Training runs on schedules of claims, fixed_h, other styles and matched random."""
    beside = [
        name
        for name in MEASURED
        if POLICIES[name].policy == "fixed_h" or style_of(name) != "blocking"
    ]
    alike = [(policy, 0) for policy in dict.fromkeys([*CONFIG.claims, *beside])]
    return [
        f"results/{RUN}/training/regime={regime}/seed={seed}/policy={policy}/draw={draw}/training_seed={training_seed}/part.parquet"
        for training_seed in CONFIG.parity.seeds
        for regime, seed in JUDGED
        for policy, draw in [
            *alike,
            *(
                (control(budget), draw)
                for budget in budgets(regime, seed)
                for draw in range(CONFIG.parity.draws)
            ),
        ]
    ]


# Progress of the islands by inner step, at a fixed period, which policies read as their training
# signal.
rule train_learners:
    input:
        script="scripts/train_learners.py",
        library=library("learners"),
    output:
        learners="results/{run}/learners/seed={seed}/part.parquet",
    log:
        "results/{run}/logs/train_learners/seed={seed}.log",
    benchmark:
        "results/{run}/benchmarks/train_learners/seed={seed}.tsv"
    threads: CONFIG.learners.islands
    resources:
        **training_needs(CONFIG.learners.islands, INNER_STEPS),
        machine=1,
    params:
        training=TRAINED_WITH,
        h=CONFIG.learners.h,
        steps=INNER_STEPS,
        data=lambda wildcards: data_of("judge", CONFIG.seeds.judge, wildcards.seed),
    script:
        "../../scripts/train_learners.py"


# Does a schedule train as well as others of its budget, and in every style as well as in others? The
# same data and the same steps for all.
rule train_on_schedule:
    input:
        schedule="results/{run}/schedule/regime={regime}/seed={seed}/policy={policy}/part.parquet",
        script="scripts/train_on_schedule.py",
        library=library("learners", "placement"),
    output:
        training="results/{run}/training/regime={regime}/seed={seed}/policy={policy}/draw={draw}/training_seed={training_seed}/part.parquet",
    log:
        "results/{run}/logs/train_on_schedule/regime={regime}/seed={seed}/policy={policy}/draw={draw}/training_seed={training_seed}.log",
    benchmark:
        "results/{run}/benchmarks/train_on_schedule/regime={regime}/seed={seed}/policy={policy}/draw={draw}/training_seed={training_seed}.tsv"
    wildcard_constraints:
        training_seed=r"\d+",
    threads: CONFIG.parity.islands
    resources:
        **training_needs(CONFIG.parity.islands, INNER_STEPS),
        machine=1,
    params:
        training={
            **TRAINED_WITH,
            "islands": CONFIG.parity.islands,
            "batch": CONFIG.parity.batch,
        },
        steps=INNER_STEPS,
        style=lambda wildcards: style_of(wildcards.policy),
        spread=lambda wildcards: spread(wildcards.policy),
        data=lambda wildcards: data_of(
            "parity", CONFIG.parity.seeds, wildcards.training_seed
        ),
        corridor=plain(CONFIG.corridor),
        merge_s=CONFIG.merge.merge_s,
        horizon_s=CONFIG.horizon_s,
    script:
        "../../scripts/train_on_schedule.py"
