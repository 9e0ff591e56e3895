"""From a source of arrivals, token lengths and a seed to the arrivals table of one block."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from safesync.tables.arrivals import ARRIVALS, arrivals_sha256
from safesync.workload.cut import cut
from safesync.workload.families import ArrivalFamily
from safesync.workload.streams import stream
from safesync.workload.tokens import Lengths, TokenLengths
from safesync.workload.trace import Trace


def generate(
    source: ArrivalFamily | Trace,
    tokens: TokenLengths,
    horizon_s: float,
    regime: str,
    seed: int,
    *,
    seeds: Sequence[int] | None = None,
    context_tokens: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> tuple[pd.DataFrame, dict]:
    """Return the arrivals of block (``regime``, ``seed``) over [0, ``horizon_s``), and their facts.

    Rows are in the ARRIVALS schema, sorted by time, ``request_id`` from 0. Arrivals, prompt and
    output lengths each come from a stream of their own, keyed by (regime, seed, purpose).

    The last three arguments are for a trace: ``seeds``, all seeds of the run in the config's order
    (None: this one alone), among which its slices are dealt; ``context_tokens``, the sidecar's
    context, to which the trace's own lengths are cut; ``progress``, called with the share of the
    work that is done, 0 to 1.

    The facts are JSON-serialisable: ``family`` (name and parameters), ``tokens``, ``regime``,
    ``seed``, ``span_s``, ``scaling`` ("none" for a family: it is simulated at its own rates),
    ``clipped_prompts`` and ``clipped_outputs`` (requests whose length was clipped),
    ``intensity`` (``edges_s`` and ``rates_rps`` of the path drawn; None where the source has none),
    ``trace`` (what was done to it, see ``cut``; None for a family) and ``arrivals_sha256``.

    Raises ValueError, in one sentence, when no request arrives or the trace cannot serve.
    """
    if not horizon_s > 0:
        raise ValueError(f"horizon_s must be above 0, found {horizon_s:g}")
    lengths = None
    if isinstance(source, Trace):
        taken = cut(source, horizon_s, regime, seed, seeds or (seed,), context_tokens, progress)
        arrival_s, lengths = taken.arrival_s, taken.lengths
        about = {"scaling": source.scaling, "intensity": None, "trace": taken.facts}
    else:
        arrival_s, intensity = _simulated(source, horizon_s, regime, seed)
        about = {"scaling": "none", "intensity": intensity, "trace": None}
    if lengths is None:
        prompts, clipped_prompts = tokens.prompt.sample(
            arrival_s.size, stream("prompts", regime, seed)
        )
        outputs, clipped_outputs = tokens.output.sample(
            arrival_s.size, stream("outputs", regime, seed)
        )
        lengths = Lengths(prompts, outputs, clipped_prompts, clipped_outputs)
    rows = pd.DataFrame(
        {
            "request_id": np.arange(arrival_s.size, dtype=np.int64),
            "arrival_s": arrival_s,
            "prompt_tokens": lengths.prompts,
            "output_tokens": lengths.outputs,
        },
        columns=ARRIVALS.schema.names,
    )
    facts = {
        "family": source.model_dump(mode="json"),
        "tokens": tokens.model_dump(mode="json"),
        "regime": regime,
        "seed": seed,
        "span_s": horizon_s,
        "clipped_prompts": lengths.clipped_prompts,
        "clipped_outputs": lengths.clipped_outputs,
        "arrivals_sha256": arrivals_sha256(rows),
        **about,
    }
    return rows, facts


def _simulated(
    family: ArrivalFamily, horizon_s: float, regime: str, seed: int
) -> tuple[np.ndarray, dict | None]:
    """Return a family's arrival times [s] and the path of its rate, for the facts."""
    drawn = family.draw(horizon_s, stream("arrivals", regime, seed))
    if drawn.arrival_s.size == 0:
        raise ValueError(
            f"regime '{regime}', seed {seed}: family '{family.family}' produced no request in "
            f"{horizon_s:g} s ({drawn.expected:.3g} expected); raise "
            f"{' or '.join(family.rate_fields)}, or the horizon"
        )
    if drawn.intensity is None:
        return drawn.arrival_s, None
    return drawn.arrival_s, {
        "edges_s": drawn.intensity.edges_s.tolist(),
        "rates_rps": drawn.intensity.rates_rps.tolist(),
    }
