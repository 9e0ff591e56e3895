"""What a run will measure, how long and on how much disk: `python -m safesync.plan CONFIG`."""

import sys
from pathlib import Path

import numpy as np

from safesync.config import Config, ConfigError, Regime, placements, read
from safesync.workload.importers.base import TraceError

# what a measurement takes beside its load, as measured on two cores: start-up and warm-up, end
OVERHEAD_S = 50
# as measured: the page; a measurement's logs, manifest and merges; a second of its telemetry; the
# row of a request; a row of the emulated tier
BYTES_OF_PAGE = 5_000_000
BYTES_PER_MEASUREMENT = 35_000
BYTES_PER_SECOND = 160
BYTES_PER_REQUEST = 180
BYTES_PER_EMULATED_REPLAY = 31
# of the merges' checkpoint, while a measurement lasts: outer parameters and momentum, fp32
BYTES_PER_PARAMETER = 8


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
    policies += blocks * len(config.claims) * config.controls.spacing
    draws = blocks * config.controls.draws
    fewest = captures + policies + draws * bool(config.claims)
    return fewest, captures + policies + draws * len(config.claims)


def requests(regime: Regime, horizon_s: float) -> float | None:
    """Return how many requests a replay is expected to have; None for a trace at its own rate."""
    source = regime.arrivals
    if source.family == "trace":
        return None if source.target_rps is None else source.target_rps * horizon_s
    # the rate of some families is random too
    drawn = [source.draw(horizon_s, np.random.default_rng(seed)) for seed in range(20)]
    return float(np.mean([one.expected for one in drawn]))


def emulated_replays(config: Config) -> tuple[int, int]:
    """Return how many replays of the emulated tier each policy has, and how many all share.

    A policy's own are the draws of matched spacing, in every block; shared are the matched-random
    draws of every budget that the corridor allows.
    """
    blocks = len(config.regimes) * (len(config.seeds.judge) + len(config.emulator.seeds))
    own = blocks * config.emulator.draws
    return own, own * len(placements(config).grid.budgets())


def disk_bytes(config: Config) -> tuple[float, float]:
    """Return about how many bytes the results take, and what a measurement takes while it lasts.

    Requests of traces at their own rate are not counted, nor the model, which runs share.
    """
    _, most = measurements(config)
    kept = BYTES_OF_PAGE + most * (BYTES_PER_MEASUREMENT + BYTES_PER_SECOND * config.horizon_s)
    for regime in config.regimes.values():
        expected = requests(regime, config.horizon_s) or 0.0
        kept += most / len(config.regimes) * expected * BYTES_PER_REQUEST
    own, shared = emulated_replays(config)
    kept += (len(config.policies) * own + shared) * BYTES_PER_EMULATED_REPLAY
    return kept, config.merge.parameters * BYTES_PER_PARAMETER


def done(config: Config, results: Path) -> int:
    """Return how many measurements of the run are already there."""
    return len(list((results / config.run / "manifest").rglob("manifest.json")))


def sentence(config: Config, results: Path) -> str:
    """Return the plan of a run in words."""
    fewest, most = measurements(config)
    kept, scratch = disk_bytes(config)
    return (
        f"run '{config.run}': {_range(fewest, most)} measurements of {config.horizon_s:g} s, each "
        f"on a server of its own: about {_range(_minutes(config, fewest), _minutes(config, most))} "
        f"minutes one after the other. Results of {done(config, results)} are there; "
        "`snakemake -n` tells which of them still hold. "
        f"Disk: about {_size(kept)} of results, and {_size(scratch)} more while a measurement runs."
    )


def progress(config: Config, results: Path) -> str:
    """Return where a run stands as a measurement of it begins: which it is, and the time left.

    Those of an earlier run that still stand in ``results`` count as made.
    """
    fewest, most = measurements(config)
    there = min(done(config, results), most - 1)
    left = _range(_minutes(config, max(fewest - there, 1)), _minutes(config, most - there))
    return f"replay {there + 1} of {_range(fewest, most)}, about {left} min left"


def _minutes(config: Config, count: int) -> int:
    return round(count * (config.horizon_s + OVERHEAD_S) / 60)


def _range(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def check_traces(config: Config, name: str) -> None:
    """Raise ConfigError when a trace that a regime names can't be read, a sentence per fault.

    Of a trace only the first bytes are read: not whether it is as long as the seeds need.
    ``name``: of the config.
    """
    # only this needs pyarrow, which is slow to load
    from safesync.workload.importers.reading import TraceFile

    faults = []
    for regime, values in config.regimes.items():
        sources = {
            "arrivals": values.arrivals,
            "tokens.prompt": values.tokens.prompt,
            "tokens.output": values.tokens.output,
        }
        for place, source in sources.items():
            for path in source.files:
                try:
                    TraceFile(path, source.format)
                except TraceError as error:
                    faults.append(f"{name}: regimes.{regime}.{place}.path: {error}")
    if faults:
        raise ConfigError("\n".join(faults))


def main(path: str) -> None:
    try:
        config = read(path)
        check_traces(config, path)
        print(sentence(config, Path("results")))
    except (ConfigError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1])
