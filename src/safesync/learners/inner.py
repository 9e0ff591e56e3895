"""An island's model and inner optimizer, over one flat buffer of parameters."""

import math

import torch
from torch import nn

from safesync.learners.model import mean_loss
from safesync.learners.settings import Training

BETAS = (0.9, 0.95)  # as Brown et al., Language models are few-shot learners, 2020
_FINAL_SHARE = 0.1  # of the peak learning rate, where the cosine ends (as Hoffmann et al., 2022)


class Inner:
    """Trains ``model`` with AdamW; all its parameters lie in ``flat``, one fp32 vector.

    A merge overwrites ``flat`` and leaves moments and step count alone: DiLoCo keeps them. The
    learning rate follows the global inner step, since the gaps between merges vary: linear warm-up
    over ``warm_up_steps``, then a cosine to a tenth at ``decay_steps``.

    Raises ValueError for a model with buffers, which a merge would leave different on every
    island, or with parameters that are not fp32.
    """

    def __init__(self, model: nn.Module, settings: Training, decay_steps: int) -> None:
        buffers = [name for name, _ in model.named_buffers()]
        if buffers:
            raise ValueError(f"the model has buffers, which merges would not average: {buffers}")
        self.model = model
        self.flat = _flatten_(model)
        self.step = 0
        self._settings = settings
        self._decay_steps = decay_steps
        self._optimizer = torch.optim.AdamW(
            [self.flat],
            lr=settings.lr,
            betas=BETAS,
            weight_decay=settings.weight_decay,
            fused=True,
        )

    def train_step(self, windows: torch.Tensor) -> float:
        """Take one inner step on a batch; return the loss before it, nats per token."""
        self._optimizer.param_groups[0]["lr"] = self.learning_rate()
        self.flat.grad.zero_()
        loss = mean_loss(self.model, windows)
        loss.backward()
        nn.utils.clip_grad_norm_([self.flat], self._settings.clip)
        self._optimizer.step()
        self.step += 1
        return loss.item()

    def learning_rate(self) -> float:
        """Return the learning rate of the next inner step."""
        peak, warm_up = self._settings.lr, self._settings.warm_up_steps
        if self.step < warm_up:
            return peak * (self.step + 1) / warm_up
        span = max(self._decay_steps - warm_up, 1)
        turned = math.pi * min((self.step - warm_up) / span, 1.0)
        return peak * (_FINAL_SHARE + (1 - _FINAL_SHARE) * (1 + math.cos(turned)) / 2)

    @property
    def moments(self) -> dict[str, torch.Tensor]:
        """Return AdamW's state by name; empty before the first step."""
        return dict(self._optimizer.state_dict()["state"].get(0, {}))

    def restore(self, step: int, moments: dict[str, torch.Tensor]) -> None:
        """Take over inner step and moments; ``flat`` is the caller's to set."""
        self.step = step
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": {0: moments}, "param_groups": groups})

    @torch.no_grad()
    def evaluate(self, windows: torch.Tensor) -> float:
        """Return the mean loss on ``windows``, in batches of the training's size."""
        total = 0.0
        for part in windows.split(self._settings.batch):
            total += mean_loss(self.model, part).item() * len(part)
        return total / len(windows)


def _flatten_(model: nn.Module) -> nn.Parameter:
    """Move all parameters and gradients of ``model`` into one vector; return it."""
    parameters = list(model.parameters())
    kinds = {parameter.dtype for parameter in parameters}
    if kinds != {torch.float32}:
        raise ValueError(f"the model's parameters must be float32, found {kinds}")
    flat = nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters]))
    flat.grad = torch.zeros_like(flat)
    start = 0
    for parameter in parameters:
        stop = start + parameter.numel()
        parameter.data = flat.data[start:stop].view_as(parameter)
        parameter.grad = flat.grad[start:stop].view_as(parameter)
        start = stop
    return flat
