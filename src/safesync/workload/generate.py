"""From a family, token lengths and a seed to the arrivals table of one block."""

import numpy as np
import pandas as pd

from safesync.tables.arrivals import ARRIVALS, arrivals_sha256
from safesync.workload.families import ArrivalFamily
from safesync.workload.streams import stream
from safesync.workload.tokens import TokenLengths


def generate(
    family: ArrivalFamily, tokens: TokenLengths, horizon_s: float, regime: str, seed: int
) -> tuple[pd.DataFrame, dict]:
    """Return the arrivals of block (``regime``, ``seed``) over [0, ``horizon_s``), and their facts.

    Rows are in the ARRIVALS schema, sorted by time, ``request_id`` from 0. Arrivals, prompt and
    output lengths each come from a stream of their own, keyed by (regime, seed, purpose).

    The facts are JSON-serialisable: ``family`` (name and parameters), ``tokens``, ``regime``,
    ``seed``, ``span_s``, ``scaling`` ("none": a family is simulated at its own rates),
    ``clipped_prompts`` and ``clipped_outputs`` (requests whose length was clipped),
    ``intensity`` (``edges_s`` and ``rates_rps`` of the path drawn) and ``arrivals_sha256``.

    Raises ValueError when no request arrives.
    """
    if not horizon_s > 0:
        raise ValueError(f"horizon_s must be above 0, found {horizon_s:g}")
    rng = stream("arrivals", regime, seed)
    intensity = family.intensity(horizon_s, rng)
    arrival_s = intensity.arrivals(rng)
    if arrival_s.size == 0:
        raise ValueError(
            f"regime '{regime}', seed {seed}: family '{family.family}' produced no request in "
            f"{horizon_s:g} s ({intensity.expected():.3g} expected); raise "
            f"{' or '.join(family.rate_fields)}, or the horizon"
        )
    count = arrival_s.size
    prompts, clipped_prompts = tokens.prompt.sample(count, stream("prompts", regime, seed))
    outputs, clipped_outputs = tokens.output.sample(count, stream("outputs", regime, seed))
    rows = pd.DataFrame(
        {
            "request_id": np.arange(count, dtype=np.int64),
            "arrival_s": arrival_s,
            "prompt_tokens": prompts,
            "output_tokens": outputs,
        },
        columns=ARRIVALS.schema.names,
    )
    facts = {
        "family": family.model_dump(mode="json"),
        "tokens": tokens.model_dump(mode="json"),
        "regime": regime,
        "seed": seed,
        "span_s": horizon_s,
        "scaling": "none",
        "clipped_prompts": clipped_prompts,
        "clipped_outputs": clipped_outputs,
        "intensity": {
            "edges_s": intensity.edges_s.tolist(),
            "rates_rps": intensity.rates_rps.tolist(),
        },
        "arrivals_sha256": arrivals_sha256(rows),
    }
    return rows, facts
