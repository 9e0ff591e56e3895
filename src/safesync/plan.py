"""What a run will measure and how long that takes: `python -m safesync.plan CONFIG`."""

import sys
from pathlib import Path

from safesync.config import Config, ConfigError, read

# what a measurement takes beside its load, as measured on two cores: start-up and warm-up, end
OVERHEAD_S = 50
# tables, logs and manifest of one request, as measured
BYTES_PER_REQUEST = 700


def measurements(config: Config) -> tuple[int, int]:
    """Return the fewest and the most measurements of a run.

    Claims whose schedules have the same budget share their draws, and budgets are known only once
    the schedules are: the two differ when there is more than one claim.
    """
    blocks = len(config.regimes) * len(config.seeds.judge)
    repeats = config.controls.repeats
    captures = len(config.regimes) * 2 * len(config.seeds.calibration)
    captures += blocks * repeats.get("nosync", 1)
    measured = [entry.id for entry in config.policies if entry.measure]
    policies = blocks * sum(repeats.get(policy, 1) for policy in measured)
    draws = blocks * config.controls.draws
    fewest = captures + policies + draws * bool(config.claims)
    return fewest, captures + policies + draws * len(config.claims)


def done(config: Config, results: Path) -> int:
    """Return how many measurements of the run are already there."""
    return len(list((results / config.run / "manifest").rglob("manifest.json")))


def sentence(config: Config, results: Path) -> str:
    """Return the plan of a run in words."""
    fewest, most = measurements(config)
    seconds = config.horizon_s + OVERHEAD_S
    count = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    return (
        f"run '{config.run}': {count} measurements of {config.horizon_s:g} s, each on a server of "
        f"its own: about {fewest * seconds / 60:.0f}"
        + (f" to {most * seconds / 60:.0f}" if most > fewest else "")
        + f" minutes one after the other. Results of {done(config, results)} are there; "
        "`snakemake -n` tells which of them still hold. "
        f"Disk: some {BYTES_PER_REQUEST} bytes per request."
    )


def main(path: str) -> None:
    try:
        print(sentence(read(path), Path("results")))
    except (ConfigError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1])
