# REQUIRED INPUTS   none (the model in the config)
# OUTPUTS           checksums = resources/models/{model}.json, what measurements depend on
# The folder resources/models/{model} is what the server reads; it is shared by all runs.


def local_model_files():
    """The files of a model that stands in a local folder; of others the config tells all."""
    if CONFIG.model.source != "folder":
        return []
    found = sorted(Path(CONFIG.model.id).glob("*"))
    return [str(path) for path in found if path.suffix in (".json", ".safetensors")]


rule prepare_model:
    input:
        script="scripts/prepare_model.py",
        library=library("sidecar.model"),
        # weights that are edited in place
        files=local_model_files(),
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
