"""How long prompts and answers are."""

from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Law(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Fixed(_Law):
    """Every request has the same length."""

    law: Literal["fixed"] = "fixed"
    tokens: int = Field(
        ge=1, le=2**31 - 1, description="Length of every request, tokens. Source: your choice."
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
    min: int = Field(1, ge=1, description="Shortest length, tokens; shorter ones are raised to it.")
    max: int = Field(
        ge=1,
        le=2**31 - 1,
        description="Longest length, tokens; longer ones are cut to it. Source: what the sidecar's "
        "context length leaves.",
    )

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
        kept = np.clip(raw, self.min, self.max)
        return kept.astype(np.int32), int(np.count_nonzero(kept != raw))


Length = Annotated[Fixed | Lognormal, Field(discriminator="law")]


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
