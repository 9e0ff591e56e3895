"""Full or read-only disks: one sentence, nothing half-written, and the next run goes on."""

from faults.disks import small_disk
from workflow.measuring import MANIFEST, QUICK, START_S, completes, fails
from workflow.project import SMALL, WEIGHTLESS

from safesync.tables.arrivals import ARRIVALS

TRACE = "results/small/arrivals/regime=bursty/seed={}/part.parquet"
# 24,000 arrivals are some 200 KB
MANY = {"bursty": {"arrivals": {"family": "poisson", "rate_rps": 2000}}}


def left_behind(project) -> list[str]:
    return [path.name for path in (project.folder / "results").rglob("*.tmp")]


def test_a_full_disk_ends_a_job_with_one_sentence_and_no_half_of_a_file(project):
    config = project.config("small", **SMALL | {"regimes": MANY})
    trace = project.folder / TRACE.format(1)
    with small_disk(project.folder / "results", 1) as disk:
        disk.fill(leaving=65_536)
        status, said = project.run(TRACE.format(1), config=config)
        assert status != 0
        assert "generate_arrivals: " in said
        assert "No space left on device" in said
        assert "Traceback" not in said, said
        assert not trace.exists()
        assert left_behind(project) == []
        disk.empty()
        status, said = project.run(TRACE.format(1), config=config)
        assert status == 0, said
        assert len(ARRIVALS.read(trace)) > 20_000


def test_a_disk_that_checkpoints_fill_ends_the_measurement(project):
    config = project.config("small", **QUICK)
    with small_disk(project.folder / "results", 64) as disk:
        disk.fill(leaving=2**21)  # a fragment's checkpoint takes 4 MB
        snakemake = project.start(MANIFEST, config=config)
        said = fails(project, snakemake, timeout_s=START_S)
        assert "merge rank 0 exited with status 1 during the measurement" in said
        assert "the checkpoint cannot be written" in said
        assert "No space left on device" in said
        assert left_behind(project) == []
        disk.empty()
        completes(project, config)


def test_read_only_results_are_told_before_anything_runs(project):
    config = project.config("small", **SMALL | {"model": WEIGHTLESS})
    with small_disk(project.folder / "results", 4) as disk:
        status, said = project.run(TRACE.format(1), config=config)
        assert status == 0, said
        disk.turn("ro")
        status, said = project.run(TRACE.format(2), config=config)
        assert status != 0
        assert "results/small: cannot be written to; the run's results go there" in said
        assert "Traceback" not in said, said
        assert "rule generate_arrivals" not in said
        disk.turn("rw")
        status, said = project.run(TRACE.format(2), config=config)
        assert status == 0, said
