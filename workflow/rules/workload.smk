# REQUIRED INPUTS   none (the regime in the config)
# OUTPUTS           arrivals = results/{run}/arrivals/regime={regime}/seed={seed}/part.parquet
# One arrival trace per (regime, seed): the same for every policy and draw of the block.


rule generate_arrivals:
    input:
        traces=lambda wildcards: traces_of(CONFIG.regimes[wildcards.regime]),
        script="scripts/generate_arrivals.py",
        library=library("workload"),
    output:
        arrivals="results/{run}/arrivals/regime={regime}/seed={seed}/part.parquet",
    log:
        "results/{run}/logs/generate_arrivals/regime={regime}/seed={seed}.log",
    benchmark:
        "results/{run}/benchmarks/generate_arrivals/regime={regime}/seed={seed}.tsv"
    resources:
        **SHORT,
        machine=1,
    params:
        arrivals=lambda wildcards: plain(CONFIG.regimes[wildcards.regime].arrivals),
        tokens=lambda wildcards: plain(CONFIG.regimes[wildcards.regime].tokens),
        horizon_s=CONFIG.horizon_s,
        seeds=lambda wildcards: slice_seeds(CONFIG.regimes[wildcards.regime]),
        context_tokens=CONFIG.sidecar.max_model_len,
    script:
        "../../scripts/generate_arrivals.py"
