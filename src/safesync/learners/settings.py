"""What a training run is: settings that a config gives, and the plan that every island reads."""

from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

LOST_A_PEER = 3  # exit status of an island that ends for want of another
DAMAGED = 4  # exit status of an island that cannot read its checkpoint
_DILOCO = "DiLoCo's (arXiv 2311.08105)"


class Training(BaseModel):
    """Sizes and optimizers of a training run; the same for all of its islands."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )

    islands: int = Field(8, ge=1, description="Training islands (study: 8), a process each.")
    layers: int = Field(2, ge=1, description="Blocks of the decoder-only transformer.")
    width: int = Field(32, ge=1, description="Its width.")
    heads: int = Field(2, ge=1, description="Attention heads; they divide the width.")
    context: int = Field(64, ge=1, description="Length of a sequence, tokens (bytes).")
    batch: int = Field(
        32,
        ge=1,
        description="Sequences per island and inner step; 32 of 64 are the study's 2048 tokens.",
    )
    lr: float = Field(0.01, gt=0, description="Peak learning rate of the inner AdamW.")
    warm_up_steps: int = Field(50, ge=0, description="Inner steps of linear warm-up, then cosine.")
    weight_decay: float = Field(0.1, ge=0, description="Decoupled weight decay of the AdamW.")
    clip: float = Field(1.0, gt=0, description="Largest norm of an inner gradient.")
    outer_lr: float = Field(0.7, gt=0, description=f"Outer learning rate; {_DILOCO}.")
    outer_momentum: float = Field(
        0.9, ge=0, lt=1, description=f"Outer Nesterov momentum; {_DILOCO}."
    )
    heldout_tokens: int = Field(
        65_536, ge=1, description="Held-out tokens that the merged model is evaluated on."
    )
    device: Literal["cpu", "cuda"] = Field(
        "cpu", description="cuda takes one GPU per island, and NCCL in place of gloo."
    )
    timeout_s: float = Field(60, gt=0, description="A collective that takes longer has failed, s.")

    @model_validator(mode="after")
    def _divides(self):
        if self.width % self.heads:
            raise ValueError(f"heads {self.heads} do not divide width {self.width}")
        return self


class Plan(Training):
    """One training run, as every island reads it."""

    seed: int = Field(ge=0, description="of initial parameters and of the data's order")
    slot: int = Field(ge=0, description="part of the corpus that this seed trains on")
    slots: int = Field(ge=1, description="parts that the corpus is cut into")
    steps: int = Field(ge=1, description="inner steps of every island")
    decay_steps: int = Field(
        ge=1, description="inner step at which the cosine ends; the same for runs to be compared"
    )
    merges: tuple[int, ...] = Field(
        description="inner steps done at each merge, rising; one more closes the training"
    )
    fragments: int = Field(
        1, ge=1, description="parts of the model that a merge takes in turn, until the next begins"
    )
    delay_steps: int = Field(
        0, ge=0, description="inner steps from a fragment's pseudo-gradient to its update"
    )
    folder: Path = Field(description="existing folder of corpus, checkpoints and result")

    @property
    def corpus(self) -> Path:
        """Return the file of the corpus, bytes."""
        return self.folder / "corpus.bin"

    @property
    def rendezvous(self) -> Path:
        """Return the file through which the islands meet; it must not exist before they do."""
        return self.folder / "rendezvous"

    @property
    def checkpoints(self) -> Path:
        """Return the folder of the checkpoints, which must exist."""
        return self.folder / "checkpoints"

    @property
    def result(self) -> Path:
        """Return the file that rank 0 writes at the end."""
        return self.folder / "result.parquet"

    @property
    def closed_merges(self) -> tuple[int, ...]:
        """Return the merges with the one that closes the training, after the last step."""
        return self.merges if self.merges[-1:] == (self.steps,) else (*self.merges, self.steps)

    @model_validator(mode="after")
    def _is_consistent(self) -> "Plan":
        if self.slot >= self.slots:
            raise ValueError(f"slot is {self.slot}, expected below slots, {self.slots}")
        if any(one >= other for one, other in pairwise((0, *self.merges))):
            raise ValueError("merges must rise from at least one inner step")
        if self.merges and self.merges[-1] > self.steps:
            raise ValueError(f"merges reach step {self.merges[-1]}, behind steps, {self.steps}")
        return self
