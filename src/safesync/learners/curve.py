"""Built-in learner progress, for configs without a real training run."""

import numpy as np
import pandas as pd

from safesync.tables.learners import LEARNERS
from safesync.workload.streams import stream

TOKENS_PER_STEP = 2_048  # per island, as in the published study
PARAMETERS = 135e6  # SmolLM2-135M, the study's model
START_TOKENS = 2e7
NOISE_NATS = 0.02


def builtin_curve(islands: int, steps: int, seed: int, step_s: float) -> pd.DataFrame:
    """Return progress of ``islands`` islands over ``steps`` inner steps, in the LEARNERS schema.

    Row (island i, step s), s = 1..steps, is the state after s inner steps: ``tokens`` cumulative,
    2,048 per step; ``loss`` in nats per token; ``step_s`` as given, seconds. Sorted by island,
    then step.

    The loss follows the scaling law of Hoffmann et al., "Training compute-optimal large language
    models", arXiv:2203.15556, equation 10, for the study's 135M parameters:
    ``1.69 + 406.4 / N**0.34 + 410.7 / D**0.28``, with D the island's tokens plus the 20 million it
    has seen before the run. There 512 steps lower the loss by 0.05 nats, the scale that the
    published score was built for. Each batch adds independent Gaussian noise of 0.02 nats.
    It is a stand-in: it does not know when merges happen.
    """
    if islands < 1 or steps < 1:
        raise ValueError(
            f"builtin_curve: needs islands and steps of at least 1, found {islands}, {steps}"
        )
    step = np.arange(1, steps + 1, dtype=np.int64)
    tokens = TOKENS_PER_STEP * step
    mean = 1.69 + 406.4 / PARAMETERS**0.34 + 410.7 / (START_TOKENS + tokens) ** 0.28
    noise = np.stack(
        [stream("curve", seed, island).standard_normal(steps) for island in range(islands)]
    )
    return pd.DataFrame(
        {
            "island": np.repeat(np.arange(islands, dtype=np.int32), steps),
            "step": np.tile(step, islands),
            "loss": (mean + NOISE_NATS * noise).ravel(),
            "tokens": np.tile(tokens, islands),
            "step_s": np.full(islands * steps, float(step_s)),
        },
        columns=LEARNERS.schema.names,
    )
