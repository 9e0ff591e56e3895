# REQUIRED INPUTS   none
# OUTPUTS           learners = results/{run}/learners/seed={seed}/part.parquet
# Progress of the training islands by inner step, which policies read as their training signal.


rule learner_curve:
    input:
        script="scripts/learner_curve.py",
        library=library("learners"),
    output:
        learners="results/{run}/learners/seed={seed}/part.parquet",
    log:
        "results/{run}/logs/learner_curve/seed={seed}.log",
    benchmark:
        "results/{run}/benchmarks/learner_curve/seed={seed}.tsv"
    resources:
        machine=1,
    params:
        islands=CONFIG.learners.islands,
        steps=int(round(CONFIG.horizon_s / CONFIG.corridor.step_s)),
        step_s=CONFIG.corridor.step_s,
    script:
        "../../scripts/learner_curve.py"
