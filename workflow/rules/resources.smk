# What jobs ask a cluster for, from the config: memory (MB), time (minutes), cores, GPUs. On a single
# machine nothing but `machine` counts. The measured figures behind it: docs/on-slurm.md
from math import ceil

from safesync.plan import emulated_replays

# a job's start, and its end, on a busy node and a slow file system
START_S = 300
# an inner step of all islands, at most; measured: 0.06 s
INNER_STEP_S = 0.25
# a second of load, emulated once, at most; measured: 1.6 µs
EMULATED_SECOND_S = 5e-6


def minutes(seconds):
    return ceil((START_S + seconds) / 60)


# seconds of work; such jobs share a job of the cluster, and their times add up
SHORT = {"mem_mb": 2000, "runtime": 2}
# minutes of work
MEDIUM = {"mem_mb": 8000, "runtime": 15}


def emulation_needs(replays):
    return {
        "mem_mb": 8000,
        "runtime": minutes(replays * CONFIG.horizon_s * EMULATED_SECOND_S),
    }


EMULATION, SHARED_EMULATION = map(emulation_needs, emulated_replays(CONFIG))


def training_needs(islands, steps):
    """A core, and on a GPU build a GPU, per island."""
    return {
        "mem_mb": 2000 + 1000 * islands,
        "runtime": minutes(steps * INNER_STEP_S),
        "cpus_per_task": islands,
        "gpu": islands if CONFIG.learners.device == "cuda" else 0,
    }


# the regime with the most ranks; islands train beside them, one each, where any regime asks for it
RANKS = max(regime.ranks or CONFIG.merge.ranks for regime in CONFIG.regimes.values())
TRAINS = any(
    regime.background.training == "learners" for regime in CONFIG.regimes.values()
)
MEASUREMENT = {
    # server, client and weights; the cache; per rank torch and six copies of what it merges
    "mem_mb": ceil(
        6000
        + 1074 * (CONFIG.sidecar.kv_cache_gib if CONFIG.sidecar.device == "cpu" else 0)
        + RANKS * (600 + 6 * 4 * CONFIG.merge.parameters / 1e6)
    ),
    "runtime": minutes(
        CONFIG.sidecar.start_timeout_s + CONFIG.horizon_s + CONFIG.client.drain_s
    ),
    # ranks and islands have one each, and the server shares the first
    "gpu": max(
        int(CONFIG.sidecar.device == "cuda" and CONFIG.sidecar.url is None),
        RANKS if CONFIG.merge.backend == "nccl" else 0,
        RANKS if TRAINS and CONFIG.learners.device == "cuda" else 0,
    ),
}
