"""How long Snakemake takes to plan a grid of the paper's size, and what of it is our own code.

Run with `python benchmarks/dag.py [--jobs 12000]`. The grid is config/paper.yaml with more judged
seeds, in a folder of its own, with empty stand-ins for all files and Snakemake's own record of
each, as after a finished run: planning it finds nothing to do. Each line gives a figure, the limit
set for it, and whether it holds; the exit status is 1 when one does not.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import math
import multiprocessing
import os
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
LINKED = ("Snakefile", "workflow", "scripts", "profiles", "src")
ARGUMENTS = ["all", "-n", "--cores", "all", "--configfile", "config/grid.yaml"]
NO_OP_LIMIT_S = 30.0
OWN_LIMIT_S = 0.5


def lay_out(folder: Path, seeds: int) -> None:
    """Make the project's folder of a grid with so many judged seeds; no file of a run is in it."""
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    (folder / "resources").mkdir()
    (folder / "resources/published").symlink_to(ROOT / "resources/published")
    values = yaml.safe_load((ROOT / "config/paper.yaml").read_text(encoding="utf-8"))
    values["run"] = "grid"
    values["seeds"]["judge"] = list(range(1000, 1000 + seeds))
    (folder / "config").mkdir()
    (folder / "config/grid.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


def snakemake(folder: Path, *more: str) -> tuple[float, str]:
    """Run a dry run in a process of its own; return its seconds and what it printed."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *ARGUMENTS, *more],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    took_s = time.perf_counter() - begin
    if done.returncode:
        sys.exit(f"snakemake failed in {folder}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return took_s, done.stdout + done.stderr


def stand_in(folder: Path) -> None:
    """Make an empty file for every output, all of one age; two budgets for every block."""
    now = time.time()
    for _ in range(3):  # what follows from the budgets is known once they are there
        _, listed = snakemake(folder, "--summary")
        for line in listed.splitlines():
            fields = line.split("\t")
            if len(fields) != 6 or fields[4] != "missing":
                continue
            path = folder / fields[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            budgets = {"claims": {}, "budgets": [10, 11]}
            path.write_text(json.dumps(budgets) if fields[2] == "budgets" else "")
            os.utime(path, (now, now))


def record(folder: Path, count: Path) -> None:
    """Let Snakemake record every job as finished; write their number to ``count``."""
    from snakemake.cli import main
    from snakemake.workflow import Workflow

    def finish(self) -> None:
        async def finished() -> None:
            for job in self.dag.jobs:
                await self.persistence.finished(job)

        self.async_run(finished())
        count.write_text(str(len(list(self.dag.jobs))))

    # called at the end of a dry run that finds nothing to do
    Workflow.log_missing_metadata_info = finish
    os.chdir(folder)
    main(ARGUMENTS)


def profile(folder: Path, figures: Path) -> None:
    """Plan under the profiler; write its figures."""
    from snakemake.cli import main

    os.chdir(folder)
    profiler = cProfile.Profile()
    try:
        profiler.runcall(main, ARGUMENTS)
    finally:
        profiler.dump_stats(figures)


def apart(work, *arguments) -> None:
    """Call ``work`` in a process of its own, silently."""
    process = multiprocessing.get_context("spawn").Process(
        target=_silently, args=(work, *arguments)
    )
    process.start()
    process.join()


def _silently(work, *arguments) -> None:
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    work(*arguments)


def _in_rules(code: tuple[str, int, str]) -> bool:
    return code[0].endswith((".smk", "/Snakefile"))


def own_share(figures: Path) -> tuple[float, list[tuple[float, int, str]]]:
    """Return the share of the time that Snakemake spends in our code, and what takes most of it.

    Counted are the functions of the rule files as Snakemake calls them, with all that they call,
    and what the files themselves call while they are read; imports are not. The functions come
    with their share and the number of their calls.
    """
    stats = pstats.Stats(str(figures))
    called = []
    for code, (_, _, _, _, callers) in stats.stats.items():
        if code[2] == "<module>" or not (_in_rules(code) or str(ROOT / "src") in code[0]):
            continue
        entries = [
            calls
            for caller, calls in callers.items()
            if (_in_rules(caller) and caller[2] == "<module>")
            or (_in_rules(code) and not _in_rules(caller))
        ]
        if entries:
            share = sum(calls[3] for calls in entries) / stats.total_tt
            times = sum(calls[1] for calls in entries)
            called.append((share, times, f"{Path(code[0]).name}:{code[1]} {code[2]}"))
    return sum(share for share, _, _ in called), sorted(called, reverse=True)[:8]


def line(what: str, figure: float, unit: str, limit: float | None = None) -> bool:
    """Print a figure; return whether it keeps within its limit."""
    good = limit is None or figure <= limit
    verdict = "" if limit is None else f"at most {limit:g}: {'holds' if good else 'FAILS'}"
    print(f"{what:<52}{figure:>10.3g} {unit:<6}{verdict}", flush=True)
    return good


def measured(seeds: int, *, limits: bool = False) -> tuple[int, float, bool]:
    """Print the figures of a grid; return its jobs, the seconds of its no-op, and if all hold."""
    with tempfile.TemporaryDirectory(prefix="safesync-dag-") as name:
        folder, figures, count = Path(name) / "grid", Path(name) / "profile", Path(name) / "jobs"
        folder.mkdir()
        lay_out(folder, seeds)
        fresh_s, _ = snakemake(folder)
        stand_in(folder)
        apart(record, folder, count)
        jobs = int(count.read_text())
        took_s, said = snakemake(folder)
        if "Nothing to be done" not in said:
            sys.exit(f"the stand-ins of {seeds} seeds are not complete:\n{said[-2000:]}")
        apart(profile, folder, figures)
        share, largest = own_share(figures)
    print(f"{seeds} judged seeds, {jobs} jobs")
    line("  a fresh run: planned up to the budgets", fresh_s, "s")
    good = line("  a finished run: nothing to do", took_s, "s", NO_OP_LIMIT_S if limits else None)
    # the profiler slows everything down, so shares of its time are taken of the time without it
    good &= line("  of it our own code", share * took_s, "s", OWN_LIMIT_S if limits else None)
    for share, times, function in largest:
        print(f"      {share * took_s:7.3f} s in {times:>7} calls of {function}")
    return jobs, took_s, good


def main() -> int:
    """Plan grids of rising size; 0 when every limit holds for the largest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=12_000, help="jobs of the largest grid")
    wanted = parser.parse_args().jobs
    one, _, _ = measured(1)
    small = 8
    first, first_s, _ = measured(small)
    per_seed = (first - one) / (small - 1)
    full = max(small + 1, math.ceil((wanted - one) / per_seed) + 1)
    measured(math.ceil(full / 3))
    jobs, took_s, good = measured(full, limits=True)
    line("time grows with jobs to the power of", math.log(took_s / first_s, jobs / first), "")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    line("peak memory of a process", peak, "GB")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
