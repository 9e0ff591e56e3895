# REQUIRED INPUTS   the verdict and every table that led to it
# OUTPUTS           page = results/{run}/report/index.html, one file that opens offline


rule report:
    input:
        requests=tables("requests", BLOCKS, known),
        merges=tables("merges", BLOCKS, known),
        telemetry=tables("telemetry", BLOCKS, known),
        manifests=tables("manifest", BLOCKS, known, "manifest.json"),
        schedules=schedules_of(BLOCKS, known),
        drawn_requests=lambda wildcards: tables("requests", BLOCKS, drawn),
        drawn_merges=lambda wildcards: tables("merges", BLOCKS, drawn),
        drawn_telemetry=lambda wildcards: tables("telemetry", BLOCKS, drawn),
        drawn_manifests=lambda wildcards: tables(
            "manifest", BLOCKS, drawn, "manifest.json"
        ),
        drawn_schedules=lambda wildcards: schedules_of(BLOCKS, drawn),
        verdict="results/{run}/verdict.json",
        scores=rules.judge.input.scores,
        emulated=rules.judge.input.emulated,
        overlap=rules.judge.input.overlap,
        agreements=expand(
            "results/{{run}}/agreement/regime={regime}/part.parquet",
            regime=CONFIG.regimes,
        ),
        transfers=rules.judge.input.transfers,
        trainings=trainings,
        thresholds=expand(
            "results/{{run}}/slo/regime={regime}.json", regime=CONFIG.regimes
        ),
        arrivals=[
            f"results/{RUN}/arrivals/regime={regime}/seed={seed}/part.parquet"
            for regime, seed in BLOCKS
        ],
        published="resources/published/figures.csv",
        script="scripts/report.py",
        library=library("report"),
        templates=sorted(map(str, Path("src/safesync/report/templates").glob("*"))),
    output:
        page=report(
            "results/{run}/report/index.html",
            caption="../report/page.rst",
            category="Verdict",
            labels={"result": "page"},
        ),
    log:
        "results/{run}/logs/report.log",
    benchmark:
        "results/{run}/benchmarks/report.tsv"
    resources:
        **MEDIUM,
        machine=1,
    params:
        config=plain(CONFIG),
        policies={entry.id: entry.described() for entry in CONFIG.policies},
        replays=lambda wildcards: [
            (regime, seed, role(seed), policy, draw)
            for which in (known, drawn)
            for regime, seed in BLOCKS
            for policy, draw in which(regime, seed)
        ],
    script:
        "../../scripts/report.py"
