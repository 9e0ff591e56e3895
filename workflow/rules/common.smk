# What the config asks for, as plain lists and input functions that the rules share.
import functools
import json
import os
from hashlib import sha256
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from safesync import config as settings
from safesync.company import CompanyError, hold
from safesync.sources import beside, library

try:
    CONFIG = settings.load(config, " + ".join(map(str, workflow.configfiles)))
except settings.ConfigError as error:
    raise WorkflowError(str(error))

RUN = CONFIG.run
HELD = []  # what keeps the results folder to this run, until Snakemake ends
POLICIES = {entry.id: entry for entry in CONFIG.policies}
MEASURED = [entry.id for entry in CONFIG.policies if entry.measure]
CALIBRATED = [
    (regime, seed) for regime in CONFIG.regimes for seed in CONFIG.seeds.calibration
]
JUDGED = [(regime, seed) for regime in CONFIG.regimes for seed in CONFIG.seeds.judge]
BLOCKS = [*CALIBRATED, *JUDGED]
# in a grid of thousands of jobs a search through a list would take longer than the rest
PLACES = {block: place for place, block in enumerate(BLOCKS)}


def plain(section):
    """Parameters that Snakemake compares by repr: nested lists, dicts and scalars only."""
    return section.model_dump(mode="json")


def traces_of(regime):
    """The trace files that a regime imports."""
    return [str(path) for path in [*regime.arrivals.files, *regime.tokens.files]]


def slice_seeds(regime):
    """All seeds, for a trace that gives each a slice of its own; others don't depend on them."""
    seeds = CONFIG.seeds
    every = [*seeds.calibration, *seeds.tune, *seeds.judge]
    return every if regime.arrivals.family == "trace" else None


@functools.cache
def policy_sources(policy):
    """The files that a policy's decisions come from."""
    entry = POLICIES[policy]
    if entry.file:
        return [entry.file, *beside(entry.file)]
    return library(f"policies.{entry.policy}")


def style_of(policy):
    """How the merges of a policy run; those of captures and controls are blocking."""
    return POLICIES[policy].style if policy in POLICIES else "blocking"


def control(budget):
    return f"matched_random_{budget}"


def spacing(claim):
    return f"matched_spacing_{claim}"


@functools.cache
def budgets(regime, seed):
    """Budgets of the claims in a block, known once their schedules are.

    They are final then; until then Snakemake's exception passes through, which is not kept.
    """
    path = checkpoints.budgets.get(run=RUN, regime=regime, seed=seed).output.budgets
    with open(path) as file:
        return json.load(file)["budgets"]


def schedule_of(regime, seed, policy):
    return f"results/{RUN}/schedule/regime={regime}/seed={seed}/policy={policy}/part.parquet"


def control_schedules(wildcards):
    return [
        schedule_of(regime, seed, control(budget))
        for regime, seed in JUDGED
        for budget in budgets(regime, seed)
    ]


def spacing_schedules():
    return [
        schedule_of(regime, seed, spacing(claim))
        for regime, seed in JUDGED
        for claim in CONFIG.claims
        if CONFIG.controls.spacing
    ]


def is_calibration(regime, seed):
    return PLACES.get((regime, seed), len(BLOCKS)) < len(CALIBRATED)


def captures(regime, seed):
    return ["nosync", "probe"] if is_calibration(regime, seed) else ["nosync"]


def repeats(policy):
    """How often a policy's schedule is measured in a judged block, as draws 0, 1, ..."""
    return CONFIG.controls.repeats.get(policy, 1)


def known(regime, seed):
    """The replays of a block that the config alone tells: (policy, draw)."""
    if is_calibration(regime, seed):
        return [(capture, 0) for capture in captures(regime, seed)]
    own = [
        (policy, draw)
        for policy in [*captures(regime, seed), *MEASURED]
        for draw in range(repeats(policy))
    ]
    orders = [
        (spacing(claim), draw)
        for claim in CONFIG.claims
        for draw in range(CONFIG.controls.spacing)
    ]
    return [*own, *orders]


def drawn(regime, seed):
    """The control replays of a block, which follow from the budgets of its claims."""
    if is_calibration(regime, seed):
        return []
    return [
        (control(budget), draw)
        for budget in budgets(regime, seed)
        for draw in range(CONFIG.controls.draws)
    ]


def replays(regime, seed):
    """All replays of a block, in the order of its tables."""
    return [*known(regime, seed), *drawn(regime, seed)]


def tables(name, blocks, which, file="part.parquet"):
    """Paths of one table for the replays of ``blocks`` that ``which`` (known or drawn) tells.

    The two are inputs of their own: what is known can be planned and run before the budgets are.
    """
    return [
        f"results/{RUN}/{name}/regime={regime}/seed={seed}/policy={policy}/draw={draw}/{file}"
        for regime, seed in blocks
        for policy, draw in which(regime, seed)
    ]


def schedules_of(blocks, which):
    """The schedule behind every replay, in the order of ``tables``."""
    return [
        schedule_of(regime, seed, policy)
        for regime, seed in blocks
        for policy, _ in which(regime, seed)
    ]


def block(wildcards):
    return [(wildcards.regime, int(wildcards.seed))]


def budget_source(wildcards):
    """The schedule whose budget a policy takes, for those that take one."""
    source = POLICIES[wildcards.policy].params.get("budget_from")
    return schedule_of(wildcards.regime, wildcards.seed, source) if source else []


def role(seed):
    return "calibration" if int(seed) in CONFIG.seeds.calibration else "judge"


def measurement_order(wildcards):
    """Seeded random order inside a block, so that drift of the machine hits all policies alike."""
    place = PLACES[wildcards.regime, int(wildcards.seed)]
    name = (
        f"{RUN}/{wildcards.regime}/{wildcards.seed}/{wildcards.policy}/{wildcards.draw}"
    )
    return (len(BLOCKS) - place) * 1000 + int(
        sha256(name.encode()).hexdigest(), 16
    ) % 1000


onstart:
    place = Path(f"results/{RUN}")
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK):
        raise WorkflowError(
            f"{place.absolute()}: cannot be written to; the run's results go there"
        )
    try:
        HELD.append(hold(Path(f"results/{RUN}")))
    except CompanyError as error:
        raise WorkflowError(str(error))
    except OSError as error:
        raise WorkflowError(
            f"{error.filename}: {error.strerror}; the run's results go there"
        )


onsuccess:
    if any(job.rule.name == "report" for job in workflow.dag.jobs):
        logger.info(f"The report is results/{RUN}/report/index.html")
