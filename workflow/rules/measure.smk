# REQUIRED INPUTS   arrivals, schedule, model checksums
# OUTPUTS           requests, merges, telemetry = results/{run}/<table>/regime=…/seed=…/policy=…/draw=…/part.parquet
#                   manifest = results/{run}/manifest/regime=…/seed=…/policy=…/draw=…/manifest.json
# One job = one measurement = its own server process, alone on its machine. The library files of
# the sidecar are no inputs: minutes of real time must not rerun for a comment. What changes the
# measurement raises MEASUREMENT_VERSION instead.
from safesync.sidecar.version import MEASUREMENT_VERSION

# what an island's inner step depends on
INNER_STEP = (
    *("layers", "width", "heads", "context", "batch", "device"),
    *("lr", "warm_up_steps", "weight_decay", "clip"),
)

STYLE_KEYS = {"bandwidth_bytes_per_s": "throttled", "passes": "overlapped"}


def measured(section, *unmeasured):
    """A section without the keys that can't change what is measured."""
    return {
        key: value for key, value in plain(section).items() if key not in unmeasured
    }


def background(wanted):
    """What runs beside a regime's measurements; islands that train come with their sizes."""
    training = {
        "settings": {key: getattr(CONFIG.learners, key) for key in INNER_STEP},
        "step_s": CONFIG.corridor.step_s,
        "decay_steps": int(round(CONFIG.horizon_s / CONFIG.corridor.step_s)),
    }
    trains = wanted.background.training == "learners"
    return plain(wanted.background) | {"training": training if trains else None}


@functools.cache
def measured_with(regime, policy):
    """The settings of a policy's measurements in a regime, as their manifests repeat them."""
    wanted = CONFIG.regimes[regime]
    style = style_of(policy)
    merge = measured(CONFIG.merge, "end_tolerance_s")
    merge |= {"ranks": wanted.ranks or CONFIG.merge.ranks, "style": style}
    # what a style does not use can't change what is measured
    merge |= {key: None for key, user in STYLE_KEYS.items() if user != style}
    beside = background(wanted)
    if policy == "nosync":
        # nothing merges: of all this only the number of islands that train can matter
        needed = ["style", *(["ranks"] if beside["training"] else [])]
        merge = {key: merge[key] for key in needed}
    return {
        "horizon_s": CONFIG.horizon_s,
        "sidecar": measured(CONFIG.sidecar, "port", "start_timeout_s"),
        "client": plain(CONFIG.client),
        "merge": merge,
        "background": beside,
        "model": CONFIG.model.name,
    }


rule measure:
    input:
        arrivals="results/{run}/arrivals/regime={regime}/seed={seed}/part.parquet",
        schedule="results/{run}/schedule/regime={regime}/seed={seed}/policy={policy}/part.parquet",
        model=f"resources/models/{CONFIG.model.name}.json",
    output:
        requests="results/{run}/requests/regime={regime}/seed={seed}/policy={policy}/draw={draw}/part.parquet",
        merges="results/{run}/merges/regime={regime}/seed={seed}/policy={policy}/draw={draw}/part.parquet",
        telemetry="results/{run}/telemetry/regime={regime}/seed={seed}/policy={policy}/draw={draw}/part.parquet",
        manifest="results/{run}/manifest/regime={regime}/seed={seed}/policy={policy}/draw={draw}/manifest.json",
    log:
        "results/{run}/logs/measure/regime={regime}/seed={seed}/policy={policy}/draw={draw}/measure.log",
    benchmark:
        "results/{run}/benchmarks/measure/regime={regime}/seed={seed}/policy={policy}/draw={draw}.tsv"
    priority: measurement_order
    resources:
        **MEASUREMENT,
        machine=100,
    params:
        version=MEASUREMENT_VERSION,
        cores=plain(CONFIG.cores),
        settings=lambda wildcards: measured_with(wildcards.regime, wildcards.policy),
    script:
        "../../scripts/measure.py"
