"""Emulator: what a sidecar would do under any merge schedule, without running it.

A discrete-event model of vLLM's continuous batching, driven by a step-time model and the
contention of merge windows; both are fitted to real captures. The room predicts requests; it
knows nothing of policies, and judges nothing.

- `Trace`, `Windows`: what arrives, and when merges contend.
- `EngineModel`: a sidecar in a regime, calibrated.
- `simulate`: one replay with every time; `latencies`: many replays of one trace, fast;
  `simulate_stream`: a trace of any length, in parts.
- `calibrate`: an `EngineModel` from nosync and probe captures, and how well it fits them.
- `agreement`: the errors of emulated latencies against measured ones.

Nothing compiles on import; the first replay of a machine takes some seconds.
"""

from safesync.emulator.agreement import Agreement, LatencyError, agreement
from safesync.emulator.calibrate import Calibration, Fit, Probe, calibrate
from safesync.emulator.engine import Latencies, Replay, Trace, latencies, simulate, simulate_stream
from safesync.emulator.model import Contention, EngineModel, Limits, StepTime
from safesync.emulator.windows import Windows

__all__ = [
    "Agreement",
    "Calibration",
    "Contention",
    "EngineModel",
    "Fit",
    "Latencies",
    "LatencyError",
    "Limits",
    "Probe",
    "Replay",
    "StepTime",
    "Trace",
    "Windows",
    "agreement",
    "calibrate",
    "latencies",
    "simulate",
    "simulate_stream",
]
