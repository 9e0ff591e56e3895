"""Blocks to try policies on: hand-made traces, and simulated periodic ones."""

import numpy as np
import pandas as pd
import pytest

from safesync.placement import Corridor
from safesync.policies import Observation, Signals
from safesync.policies.observe import ObservedTrace, observe_block
from safesync.workload.families import Periodic
from safesync.workload.streams import stream

STEP_S = 0.0625
REFERENCES = {
    "network_reference_bytes_per_s": 15e6,
    "disk_reference_bytes_per_s": 5e6,
    "serving_reference": 8.0,
}


@pytest.fixture
def corridor():
    """The default corridor: 8 to 32 s between merges of 8 s, in 100 s."""
    return Corridor(h_min=128, h_max=512, step_s=STEP_S, merge_s=8.0, horizon_s=100.0)


def flat_trace(steps=2_000, seconds=130.0, islands=2, pressures=(0.0, 0.0, 0.0)):
    """A trace without requests, with constant pressures and a loss that never moves."""
    telemetry_s = np.arange(0.0, seconds, 0.2)
    return ObservedTrace(
        arrival_s=np.empty(0),
        done_s=np.empty(0),
        telemetry_s=telemetry_s,
        pressures=np.repeat(np.array(pressures)[:, None], telemetry_s.size, axis=1),
        loss=np.full((islands, steps), 4.0),
        tokens=np.tile(2_048 * np.arange(1, steps + 1), (islands, 1)),
    )


def capture(seed, family=None, horizon_s=100.0):
    """Simulate a nosync capture in which each request stays about 1 s: requests, telemetry."""
    rng = stream("tests/policies", seed)
    arrival_s = (family or Periodic()).simulate(horizon_s, rng)
    done_s = arrival_s + rng.uniform(0.7, 1.3, arrival_s.size)
    t_s = np.arange(0.0, horizon_s, 0.2)
    running = np.searchsorted(arrival_s, t_s) - np.searchsorted(np.sort(done_s), t_s)
    telemetry = pd.DataFrame(
        {
            "t_s": t_s,
            "running": running.astype(float),
            "waiting": 0.0,
            "network_bytes": np.cumsum(rng.integers(0, 300_000, t_s.size)),
            "disk_written_bytes": np.cumsum(rng.integers(0, 100_000, t_s.size)),
        }
    )
    return pd.DataFrame({"arrival_s": arrival_s, "done_s": done_s}), telemetry


def progress(islands, steps, seed):
    """A stand-in for real training: the loss falls by 0.5 nats over the first 512 steps.

    Its shape is the scaling law of Hoffmann et al., arXiv:2203.15556, equation 10, in tokens.
    """
    step = np.arange(1, steps + 1)
    mean = 4_107 / (2e7 + 2_048 * step) ** 0.28
    noise = [stream("curve", seed, island).standard_normal(steps) for island in range(islands)]
    return pd.DataFrame(
        {
            "island": np.repeat(np.arange(islands), steps),
            "step": np.tile(step, islands),
            "loss": (mean + 0.2 * np.stack(noise)).ravel(),
            "tokens": np.tile(2_048 * step, islands),
        }
    )


def simulated_trace(seed, family=None, horizon_s=100.0):
    """The observable trace of a simulated capture and the progress of two simulated islands."""
    requests, telemetry = capture(seed, family, horizon_s)
    learners = progress(2, int(horizon_s / STEP_S), seed)
    return observe_block(requests, telemetry, learners, **REFERENCES)


@pytest.fixture(scope="session")
def flat():
    """``flat_trace``, to be called with what should differ."""
    return flat_trace


@pytest.fixture(scope="session")
def simulated():
    """``simulated_trace``, to be called with a seed; traces are kept for the session."""
    traces = {}

    def get(seed, family=None, horizon_s=100.0):
        key = (seed, family, horizon_s)
        if key not in traces:
            traces[key] = simulated_trace(*key)
        return traces[key]

    return get


@pytest.fixture(scope="session")
def seen():
    """One observation, to be called with what should differ."""

    def build(**changes):
        values = {
            "now_s": 20.0,
            "step": 256,
            "gap": 256,
            "merges": 0,
            "h_min": 128,
            "h_max": 512,
            "step_s": 0.0625,
            "merge_s": 8.0,
            "horizon_s": 100.0,
            "counts_per_s": np.array([2, 4, 1]),
            "in_flight": 3,
            "signals": Signals(network=0.1, serving=0.2, checkpoint=0.4),
            "loss_drop": np.array([0.2, 2.0]),
            "tokens": np.array([250_000, 2_000_000]),
            "staleness_s": np.array([16.0, 64.0]),
        } | changes
        return Observation(**values)

    return build
