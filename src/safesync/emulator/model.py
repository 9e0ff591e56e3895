"""What the engine has to know of one sidecar in one regime; `calibrate` finds it out."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Limits(_Part):
    """What bounds a batch of the engine (vLLM's scheduler and cache settings)."""

    max_num_seqs: int = Field(ge=1, description="Most running sequences.")
    max_num_batched_tokens: int = Field(
        2048, ge=1, description="Most tokens in one step. Default: vLLM's own for a CPU server."
    )
    max_model_len: int = Field(ge=2, description="Most tokens of one request, prompt and output.")
    block_size: int = Field(
        16,
        ge=1,
        description="Tokens in one KV-cache block. Default: vLLM's own (its CPU attention: 32).",
    )
    kv_blocks: int | None = Field(
        None,
        ge=1,
        description="KV-cache blocks that requests can hold (vLLM keeps one of its blocks back); "
        "null: memory never binds.",
    )


class StepTime(_Part):
    """Seconds that one engine step takes without contention, linear in what it computes."""

    base_s: float = Field(gt=0, description="Any step, s.")
    per_decode_s: float = Field(ge=0, description="Each sequence that decodes one token, s.")
    per_prefill_token_s: float = Field(ge=0, description="Each prompt token computed, s.")
    per_context_token_s: float = Field(
        0.0, ge=0, description="Each token in the KV cache of the sequences in the step, s."
    )

    def seconds(self, decodes, prefill_tokens, context_tokens):
        """Return the seconds of steps that compute so much; numbers or arrays of one shape."""
        return (
            self.base_s
            + self.per_decode_s * decodes
            + self.per_prefill_token_s * prefill_tokens
            + self.per_context_token_s * context_tokens
        )


class Contention(_Part):
    """How much longer work takes inside a merge window of one phase."""

    phase: str = Field("merge", description="Phase of a merge that this holds for.")
    factor: float = Field(gt=0, description="Stretch of a step with one sequence (1: none).")
    per_sequence: float = Field(
        0.0, ge=0, description="Growth of the factor with each further sequence in the step."
    )
    delay_s: float = Field(
        0.0, ge=0, description="Time that a whole step inside takes beyond its work's stretch, s."
    )
    overhead_s: float = Field(
        0.0,
        ge=0,
        description="Latency outside the engine of a request that arrives inside, beyond the "
        "client's, s.",
    )
    spread: float = Field(
        0.0,
        ge=0,
        description="Standard deviation of the logarithm of a single window's factor: how much "
        "windows differ by themselves.",
    )


class EngineModel(_Part):
    """A sidecar in a regime, as the emulator runs it."""

    limits: Limits = Field(description="Bounds of a batch.")
    step: StepTime = Field(description="Step time without contention.")
    contention: tuple[Contention, ...] = Field(
        min_length=1, description="Contention by phase; windows refer to it by position."
    )
    client_overhead_s: float = Field(
        ge=0, description="Fixed latency outside the engine (network, HTTP, tokenizer), s."
    )
