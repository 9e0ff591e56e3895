"""The outer optimizer: SGD with Nesterov momentum."""

import torch
from torch.optim.sgd import sgd


def nesterov_step_(
    parameters: torch.Tensor,
    velocity: torch.Tensor,
    gradient_sum: torch.Tensor,
    *,
    count: int,
    lr: float,
    momentum: float,
) -> None:
    """Step ``parameters`` and ``velocity`` in place; ``gradient_sum`` is used up as scratch.

    The update of ``torch.optim.SGD(nesterov=True, dampening=0)`` for the gradient
    ``g = gradient_sum / count``: ``v <- momentum * v + g``, then
    ``p <- p - lr * (g + momentum * v)``. It is torch's fused kernel, one pass over memory, and
    divides in the same pass. A velocity of zeros is the state before the first step. All three
    are flat, of equal size.
    """
    sgd(
        [parameters],
        [gradient_sum],
        [velocity],
        fused=True,
        grad_scale=torch.tensor(float(count), device=parameters.device),
        weight_decay=0.0,
        momentum=momentum,
        lr=lr,
        dampening=0.0,
        nesterov=momentum > 0,
        maximize=False,
    )
