# REQUIRED INPUTS   the verdict and every table that led to it
# OUTPUTS           page = results/{run}/report/index.html, one file that opens offline


rule report:
    input:
        requests=lambda wildcards: tables("requests", BLOCKS),
        merges=lambda wildcards: tables("merges", BLOCKS),
        telemetry=lambda wildcards: tables("telemetry", BLOCKS),
        manifests=lambda wildcards: tables("manifest", BLOCKS, "manifest.json"),
        schedules=lambda wildcards: schedules_of(BLOCKS),
        verdict="results/{run}/verdict.json",
        scores=rules.judge.input.scores,
        thresholds=expand("results/{{run}}/slo/regime={regime}.json", regime=CONFIG.regimes),
        script="scripts/report.py",
        library=library("report"),
        templates=sorted(map(str, Path("src/safesync/report/templates").glob("*"))),
    output:
        page=report(
            "results/{run}/report/index.html",
            caption="../report/page.rst",
            category="Verdict",
        ),
    log:
        "results/{run}/logs/report.log",
    benchmark:
        "results/{run}/benchmarks/report.tsv"
    params:
        config=plain(CONFIG),
        replays=lambda wildcards: [
            (regime, seed, role(seed), policy, draw)
            for regime, seed in BLOCKS
            for policy, draw in replays(regime, seed)
        ],
    resources:
        machine=1,
    script:
        "../../scripts/report.py"
