"""The model that the islands train: a compact decoder-only transformer over bytes."""

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 256  # one token is one byte
_INITIAL_SD = 0.02


class Transformer(nn.Module):
    """Pre-norm decoder with learned positions and tied embeddings (Radford et al., GPT-2, 2019).

    ``forward`` takes bytes of shape (batch, context), int64, and returns logits of shape
    (batch, context, 256). It holds no buffers: an outer merge averages parameters only, and
    whatever else a model kept would drift apart between islands.
    """

    def __init__(self, *, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(torch.empty(context, width))
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.positions, std=_INITIAL_SD)
        self.apply(_initialise)
        for block in self.blocks:
            # as many residual additions as layers times two keep the variance of one
            for output in (block.attention_out, block.mlp_out):
                nn.init.normal_(output.weight, std=_INITIAL_SD / (2 * layers) ** 0.5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            hidden = block(hidden)
        return functional.linear(self.norm(hidden), self.tokens.weight)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.attention_in = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, 4 * width)
        self.mlp_out = nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, context, width = hidden.shape
        projected = self.attention_in(self.attention_norm(hidden))
        query, key, value = projected.view(
            batch, context, 3, self._heads, width // self._heads
        ).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        attended = attended.transpose(1, 2).reshape(batch, context, width)
        hidden = hidden + self.attention_out(attended)
        inside = functional.gelu(self.mlp_in(self.mlp_norm(hidden)), approximate="tanh")
        return hidden + self.mlp_out(inside)


def mean_loss(model: nn.Module, windows: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of predicting each next byte, nats per token, a scalar.

    ``windows``: bytes of shape (batch, context + 1), int64.
    """
    logits = model(windows[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=_INITIAL_SD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
