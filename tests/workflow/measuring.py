"""A measurement of a project: brought under load, seen to fail cleanly, run to its end."""

import subprocess
from pathlib import Path

from safesync.tables import read_document
from workflow.project import PACED, SMALL, WEIGHTLESS, Project, wait_until

START_S = 150  # a real server needs 35 s on an idle machine
FAIL_S = 45

# the probe of a calibration seed: a measurement with merges that needs no policy and no training
PROBED = SMALL | {"seeds": {"calibration": [1], "tune": [], "judge": [2]}}
# the same on a server that is ready at once
QUICK = PROBED | {"sidecar": PACED, "model": WEIGHTLESS}

_PLACE = "results/small/{}/regime=bursty/seed=1/policy={}/draw=0/{}"
MANIFEST = _PLACE.format("manifest", "probe", "manifest.json")
# the same without merges
NOSYNC = _PLACE.format("manifest", "nosync", "manifest.json")


def log_of(manifest: str) -> str:
    """Return where the measurement of ``manifest`` writes what it says."""
    return manifest.replace("/manifest/", "/logs/measure/").replace("manifest.json", "measure.log")


def outputs_of(manifest: str) -> list[str]:
    """Return the paths of all that the measurement of ``manifest`` writes."""
    tables = [
        manifest.replace("/manifest/", f"/{table}/").replace("manifest.json", "part.parquet")
        for table in ("requests", "merges", "telemetry")
    ]
    return [*tables, manifest]


def told(path: Path, words: str) -> bool:
    """Return whether a log that may not be there yet holds ``words``."""
    return path.exists() and words in path.read_text(errors="replace")


def reached(
    project: Project,
    config: str,
    words: str = "s of load",
    manifest: str = MANIFEST,
    environment: dict[str, str] | None = None,
) -> subprocess.Popen:
    """Start Snakemake for a measurement; return it when the measurement has said ``words``."""
    snakemake = project.start(manifest, config=config, environment=environment)
    log = project.folder / log_of(manifest)
    wait_until(lambda: told(log, words) or snakemake.poll() is not None, START_S, words)
    assert snakemake.poll() is None, project.said()
    return snakemake


def fails(
    project: Project,
    snakemake: subprocess.Popen,
    manifest: str = MANIFEST,
    timeout_s: float = FAIL_S,
) -> str:
    """See the run fail without a trace of it; return what it said."""
    wait_until(lambda: snakemake.poll() is not None, timeout_s, "failure")
    said = project.said()
    assert snakemake.returncode != 0, said
    wait_until(lambda: not project.processes(), 15, "no process left")
    assert [name for name in outputs_of(manifest) if (project.folder / name).exists()] == []
    assert not list((project.folder / "results/small/.scratch").iterdir())
    assert "Traceback" not in said, said
    return said


def completes(project: Project, config: str, manifest: str = MANIFEST) -> dict:
    """See the next run finish the work with one measurement; return its manifest."""
    status, said = project.run(manifest, config=config)
    assert status == 0, said
    assert "replay 1 of 4, about 4 min left" in said
    finished = [line for line in said.splitlines() if "Finished jobid" in line]
    assert len([line for line in finished if "measure" in line]) == 1
    found = read_document(project.folder / manifest)
    assert found["figures"]["never_sent"] == 0
    wait_until(lambda: not project.processes(), 10, "no process left")
    return found
