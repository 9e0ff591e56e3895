# REQUIRED INPUTS   none (the model in the config)
# OUTPUTS           checksums = resources/models/{model}.json, what measurements depend on
# The folder resources/models/{model} is what the server reads; it is shared by all runs.


rule prepare_model:
    input:
        script="scripts/prepare_model.py",
        library=library("sidecar.model"),
    output:
        checksums="resources/models/{model}.json",
    log:
        "resources/models/logs/{model}.log",
    benchmark:
        "resources/models/benchmarks/{model}.tsv"
    resources:
        **MEDIUM,
        machine=1,
    params:
        model=plain(CONFIG.model),
        folder="resources/models/{model}",
    script:
        "../../scripts/prepare_model.py"
