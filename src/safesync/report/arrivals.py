"""Where a regime's arrivals come from, in plain words: the family's parameters or the trace."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from safesync.workload.families import FAMILIES

_FAMILIES = {family.model_fields["family"].default: family for family in FAMILIES}

PUBLISHED = {
    "azure_2023": "Azure LLM inference trace 2023, github.com/Azure/AzurePublicDataset, CC-BY-4.0",
    "azure_2024": "Azure LLM inference trace 2024, github.com/Azure/AzurePublicDataset, CC-BY-4.0",
    "burstgpt": "BurstGPT, github.com/HPMLL/BurstGPT, CC-BY-4.0",
    "mooncake": "Mooncake trace of FAST25, github.com/kvcache-ai/Mooncake, Apache-2.0",
    "arrivals_csv": "a file of your own; its licence is not recorded",
    "arrivals_parquet": "a file of your own; its licence is not recorded",
}


@dataclass(frozen=True)
class Origin:
    """Where the arrivals of one regime come from.

    ``lead``: one sentence. ``facts``: what was done to a trace, and how long prompts and answers
    are, a sentence each. ``parameters``: (name, value, meaning) of a family; empty for a trace.
    ``blocks``: a row per seed with ``seed``, ``requests``, ``rate_rps`` (over the horizon),
    ``clipped_prompts``, ``clipped_outputs`` (requests whose lengths were cut) and ``slice`` (its
    ``times`` in the trace and its ``requests`` before thinning; None for a family).
    """

    lead: str
    facts: list[str]
    parameters: list[tuple[str, str, str]]
    blocks: list[dict]


def origin(blocks: Sequence[Mapping]) -> Origin | None:
    """Return where the arrivals of one regime come from; None without a block.

    ``blocks``: the metadata of its ARRIVALS tables with ``requests``, their rows, a seed each.
    """
    if not blocks:
        return None
    blocks = sorted(blocks, key=lambda block: block["seed"])
    first = blocks[0]
    trace, family = first["trace"], first["family"]
    if trace is None:
        model = _FAMILIES[family["family"]]
        lead = f"Simulated, family {family['family']}. {inspect.getdoc(model).splitlines()[0]}"
        facts, parameters = [_drawn_lengths(first["tokens"])], _parameters(family)
    else:
        lead = (
            f"Replayed from a trace: {PurePath(trace['path']).name}, format {trace['format']} "
            f"({PUBLISHED.get(trace['format'], 'of unknown origin')})."
        )
        facts, parameters = _trace_facts(first), []
    return Origin(lead, facts, parameters, [_block(block) for block in blocks])


def _parameters(family: Mapping, prefix: str = "") -> list[tuple[str, str, str]]:
    fields = _FAMILIES[family["family"]].model_fields
    rows = []
    for name, field in fields.items():
        if name == "family":
            continue
        value, meaning = family[name], field.description.partition(" Source:")[0].rstrip(".")
        if isinstance(value, Mapping):
            rows.append((prefix + name, value["family"], meaning))
            rows += _parameters(value, f"{prefix}{name}.")
        else:
            rows.append((prefix + name, _value(value), meaning))
    return rows


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    if value is None:
        return "drawn per seed"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _drawn_lengths(tokens: Mapping) -> str:
    return f"Prompts: {_law(tokens['prompt'])}. Answers: {_law(tokens['output'])}."


def _law(law: Mapping) -> str:
    if law["law"] == "fixed":
        return f"{law['tokens']} tokens each"
    bounds = f"cut to {law['min']}\u2013{law['max']} tokens"
    if law["law"] == "lognormal":
        return f"lognormal, median {law['median']:g} tokens, sigma {law['sigma']:g}, {bounds}"
    if law["path"] is not None:
        return f"drawn from the {law['column']}s of {PurePath(law['path']).name}, {bounds}"
    return f"drawn from a list of {len(law['values'])}, {bounds}"


def _trace_facts(facts: Mapping) -> list[str]:
    trace = facts["trace"]
    said = [
        f"The file has {trace['rows']:,} rows over {trace['span_s']:,.0f} s (SHA-256 "
        f"{trace['sha256'][:12]}\u2026). {trace['failed_rows_dropped']:,} rows without output "
        "tokens, requests that failed, were dropped.",
        f"Window: {_times(trace['window_start_s'], trace['window_s'])} of the trace, "
        f"{trace['window_requests']:,} requests, {trace['window_rps']:.3g} requests/s.",
        _slices(trace),
        _scaling(facts["scaling"], trace),
        f"Requests of one stamp were spread uniformly over the {trace['spread_s']:g} s after it, "
        "the resolution of the stamps."
        if trace["spread_s"]
        else "Stamps were used as they stand.",
        _trace_lengths(trace)
        if trace["lengths"] == "trace"
        else f"Lengths are the config's, not the trace's. {_drawn_lengths(facts['tokens'])}",
    ]
    return [*said, *(f"{note[:1].upper()}{note[1:]}." for note in trace["notes"])]


def _slices(trace: Mapping) -> str:
    if trace["slices"] == "overlapping":
        return (
            f"Every seed takes {trace['slice_s']:,.1f} s from a random start, so seeds may share "
            "bursts: they are no independent evidence."
        )
    return (
        f"Every seed takes a slice of its own, {trace['slice_s']:,.1f} s long: one of "
        f"{trace['slices_in_window']:,} in the window, {trace['slices_without_requests']:,} of "
        "them without a request and passed over."
    )


def _scaling(scaling: str, trace: Mapping) -> str:
    if scaling == "thin":
        return (
            f"Thinned to {trace['target_rps']:g} requests/s: each request was kept with "
            f"probability {trace['keep_probability']:.3g}, which pulls bursts towards Poisson."
        )
    if scaling == "stretch":
        return (
            f"Stretched to {trace['target_rps']:g} requests/s: time was multiplied by "
            f"{trace['time_factor']:.3g}, and with it the length of bursts and silences."
        )
    return "Not scaled: the trace's own rate."


def _trace_lengths(trace: Mapping) -> str:
    context = trace["context_tokens"]
    kept = "uncut" if context is None else f"cut to the sidecar's context of {context:,} tokens"
    return f"Each request has its own lengths, {kept} (answers first); cut ones are counted below."


def _times(start_s: float, length_s: float) -> str:
    return f"{start_s:,.1f} to {start_s + length_s:,.1f} s"


def _block(facts: Mapping) -> dict:
    trace = facts["trace"]
    return {
        "seed": facts["seed"],
        "requests": facts["requests"],
        "rate_rps": facts["requests"] / facts["span_s"],
        "clipped_prompts": facts["clipped_prompts"],
        "clipped_outputs": facts["clipped_outputs"],
        "slice": None
        if trace is None
        else {
            "times": _times(trace["slice_start_s"], trace["slice_s"]),
            "requests": trace["slice_requests"],
        },
    }
