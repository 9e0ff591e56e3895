"""How long prompts and answers are."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from safesync.workload.importers import FormatName

_LONGEST = 2**31 - 1


class _Law(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that lengths are read from."""
        return ()


_MIN = Field(1, ge=1, description="Shortest length, tokens; shorter ones are raised to it.")
_MAX = Field(
    ge=1,
    le=_LONGEST,
    description="Longest length, tokens; longer ones are cut to it. Source: what the sidecar's "
    "context length leaves.",
)


class Fixed(_Law):
    """Every request has the same length."""

    law: Literal["fixed"] = "fixed"
    tokens: int = Field(
        ge=1, le=_LONGEST, description="Length of every request, tokens. Source: your choice."
    )

    def sample(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        """Return ``count`` lengths (int32) and 0: nothing can be clipped; ``rng`` is not used."""
        return np.full(count, self.tokens, dtype=np.int32), 0


class Lognormal(_Law):
    """Lengths are lognormal, rounded to whole tokens and clipped into ``min..max``."""

    law: Literal["lognormal"] = "lognormal"
    median: float = Field(
        gt=0,
        allow_inf_nan=False,
        description="Median length before clipping, tokens. Source: your traffic.",
    )
    sigma: float = Field(
        ge=0,
        allow_inf_nan=False,
        description="Standard deviation of the length's natural logarithm, no unit. Source: your "
        "traffic.",
    )
    min: int = _MIN
    max: int = _MAX

    @model_validator(mode="after")
    def _check(self) -> "Lognormal":
        if not self.min <= self.median <= self.max:
            raise ValueError(
                f"median ({self.median:g}) must lie between min ({self.min}) and max ({self.max})"
            )
        return self

    def sample(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        """Return ``count`` lengths (int32) and how many of them were clipped."""
        raw = np.rint(self.median * np.exp(self.sigma * rng.standard_normal(count)))
        return _clipped(self, raw)


class Empirical(_Law):
    """Lengths drawn, with repetition, from a list or from a column of a trace, then clipped."""

    law: Literal["empirical"] = "empirical"
    values: tuple[Annotated[int, Field(ge=0, le=_LONGEST)], ...] | None = Field(
        None, min_length=1, description="Lengths to draw from, tokens. Source: your traffic."
    )
    weights: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] | None = Field(
        None,
        description="Weight of each value, no unit; null: all alike. Source: your traffic.",
    )
    path: str | None = Field(
        None,
        min_length=1,
        description="Trace to draw from in place of values, no unit. Source: as values.",
    )
    format: FormatName = Field(
        "auto", description="Format of the trace, no unit; auto: told by its header."
    )
    column: Literal["prompt", "output"] = Field(
        "prompt", description="Which lengths of the trace, no unit."
    )
    min: int = _MIN
    max: int = _MAX

    @model_validator(mode="after")
    def _check(self) -> "Empirical":
        if self.min > self.max:
            raise ValueError(f"min ({self.min}) must not exceed max ({self.max})")
        if (self.values is None) == (self.path is None):
            raise ValueError("give either values or path")
        if self.weights is not None:
            if len(self.weights) != len(self.values or ()):
                raise ValueError(
                    f"weights: {len(self.weights)} of them for {len(self.values or ())} values"
                )
            if not any(self.weights):
                raise ValueError("weights: at least one must be above 0")
        return self

    @property
    def files(self) -> tuple[str, ...]:
        """The files that lengths are read from."""
        return () if self.path is None else (self.path,)

    def sample(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        """Return ``count`` lengths (int32) and how many of them were clipped.

        Raises ValueError, in one sentence, when the trace cannot be read or has no lengths.
        """
        if self.path is None:
            values = np.array(self.values)
            weights = np.ones(len(values)) if self.weights is None else np.array(self.weights)
        else:
            # only this needs pyarrow, which is slow to load
            from safesync.workload.importers.reading import TraceFile

            values, weights = TraceFile(self.path, self.format, 0).length_counts(self.column)
        return _clipped(self, rng.choice(values, count, p=weights / weights.sum()))


def _clipped(law: "Lognormal | Empirical", raw: np.ndarray) -> tuple[np.ndarray, int]:
    kept = np.clip(raw, law.min, law.max)
    return kept.astype(np.int32), int(np.count_nonzero(kept != raw))


Length = Annotated[Fixed | Lognormal | Empirical, Field(discriminator="law")]


class TokenLengths(BaseModel):
    """Lengths of prompts and answers, drawn independently of each other and of the arrivals."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: Length = Field(
        Fixed(tokens=64),
        description="Prompt length, tokens. Source: the load of the prototype on a vLLM CPU "
        "sidecar.",
    )
    output: Length = Field(
        Fixed(tokens=16),
        description="Answer length, tokens (the server ignores end-of-sequence). Source: as "
        "prompt.",
    )

    @property
    def files(self) -> tuple[str, ...]:
        """The files that lengths are read from."""
        return (*self.prompt.files, *self.output.files)


@dataclass(frozen=True)
class Lengths:
    """Lengths of a block's requests, int32 tokens, shape (n,), and how many were clipped."""

    prompts: np.ndarray
    outputs: np.ndarray
    clipped_prompts: int
    clipped_outputs: int


def clip(
    prompts: np.ndarray,
    outputs: np.ndarray,
    context_tokens: int | None = None,
    max_prompt: int | None = None,
    max_output: int | None = None,
) -> Lengths:
    """Return real lengths, int64 of shape (n,), cut to what a sidecar takes: prompt + answer.

    An answer is cut to ``max_output`` (None: half of ``context_tokens``), then its prompt to
    ``max_prompt`` and to what the answer leaves of the context; both are at least 1 token. None
    for a limit: there is none. Raises ValueError for a context below 2 tokens.
    """
    context = 2 * _LONGEST if context_tokens is None else context_tokens
    if context < 2:
        raise ValueError(f"context_tokens must be at least 2, found {context_tokens}")
    longest = min(context // 2 if max_output is None else max_output, context - 1)
    kept_outputs = np.clip(outputs, 1, longest)
    room = np.minimum(context - kept_outputs, _LONGEST if max_prompt is None else max_prompt)
    kept_prompts = np.clip(prompts, 1, room)
    return Lengths(
        kept_prompts.astype(np.int32),
        kept_outputs.astype(np.int32),
        int(np.count_nonzero(kept_prompts != prompts)),
        int(np.count_nonzero(kept_outputs != outputs)),
    )
