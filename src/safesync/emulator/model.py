"""The calibrated model of one sidecar in one regime: what `model.json` holds."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from safesync.tables import read_document, write_document

MODEL_VERSION = 1


class ModelError(ValueError):
    """A model file cannot be used; the message is one sentence."""


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
    spread: float = Field(
        0.0,
        ge=0,
        description="Standard deviation of the logarithm of a single window's factor: how much "
        "windows differ by themselves.",
    )


class EngineModel(_Part):
    """A sidecar in a regime, as the emulator runs it."""

    version: int = Field(MODEL_VERSION, description="Version of this document's meaning.")
    sidecar: str = Field(
        min_length=1, description="Identity of the sidecar that was measured: its fingerprint."
    )
    regime: str = Field(min_length=1, description="Regime of the captures that were fitted.")
    limits: Limits = Field(description="Bounds of a batch.")
    step: StepTime = Field(description="Step time without contention.")
    contention: tuple[Contention, ...] = Field(
        min_length=1, description="Contention by phase; windows refer to it by position."
    )
    client_overhead_s: float = Field(
        ge=0, description="Fixed latency outside the engine (network, HTTP, tokenizer), s."
    )


def write_model(path: str | Path, model: EngineModel) -> None:
    """Write `model` as JSON, through a temporary name and a rename."""
    write_document(path, model.model_dump(mode="json"))


def read_model(path: str | Path, *, sidecar: str, regime: str) -> EngineModel:
    """Return the model in `path`, which must be of this sidecar and this regime.

    Raises ModelError when it is of another version, sidecar or regime or has a wrong field, and
    TableError when the file cannot be read as a JSON object.
    """
    document = read_document(path, required=("version",))
    if document["version"] != MODEL_VERSION:
        raise ModelError(
            f"{path}: model version {document['version']}, expected {MODEL_VERSION}; "
            "calibrate again"
        )
    try:
        model = EngineModel.model_validate(document)
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(str(part) for part in fault["loc"])
        raise ModelError(f"{path}: field '{field}': {fault['msg']}") from None
    for name, expected in (("sidecar", sidecar), ("regime", regime)):
        found = getattr(model, name)
        if found != expected:
            raise ModelError(
                f"{path}: calibrated for {name} '{found}', expected '{expected}'; calibrate again"
            )
    return model
