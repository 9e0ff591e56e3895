# safesync: from a config to a verdict page. Results go to results/<run>/.
from snakemake.utils import min_version

min_version("9.27")


report: "workflow/report/workflow.rst"


# an overlay would be merged into the default file, so the default is read only without another
if not workflow.overwrite_configfiles:

    configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/resources.smk"


wildcard_constraints:
    run=RUN,
    regime="[a-z0-9_]+",
    seed=r"\d+",
    policy="[a-z0-9_]+",
    draw=r"\d+",
    budget=r"\d+",
    model=r"[A-Za-z0-9][A-Za-z0-9._-]*",


localrules:
    all,
    traces,
    schedules,


rule all:
    default_target: True
    input:
        f"results/{RUN}/verdict.json",
        f"results/{RUN}/report/index.html",


# `make run` asks for these two first, each in a run of its own: what comes out byte-identical
# after an edit then reruns no measurement
rule traces:
    input:
        [
            f"results/{RUN}/arrivals/regime={regime}/seed={seed}/part.parquet"
            for regime, seed in BLOCKS
        ],
        [
            schedule_of(regime, seed, policy)
            for regime, seed in BLOCKS
            for policy in captures(regime, seed)
        ],
        f"resources/models/{CONFIG.model.name}.json",


rule schedules:
    input:
        [
            schedule_of(regime, seed, policy)
            for regime, seed in JUDGED
            for policy in POLICIES
        ],
        spacing_schedules(),
        control_schedules,


include: "workflow/rules/workload.smk"
include: "workflow/rules/sidecar.smk"
include: "workflow/rules/learners.smk"
include: "workflow/rules/schedule.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/emulate.smk"
include: "workflow/rules/judge.smk"
include: "workflow/rules/report.smk"
