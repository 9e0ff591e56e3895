"""The outer optimizer: SGD with Nesterov momentum."""

import torch


def nesterov_step_(
    parameters: torch.Tensor,
    velocity: torch.Tensor,
    gradient: torch.Tensor,
    *,
    lr: float,
    momentum: float,
) -> None:
    """Step ``parameters`` and ``velocity`` in place; ``gradient`` is used up as scratch.

    The update of ``torch.optim.SGD(nesterov=True, dampening=0)``, operation by operation:
    ``v <- momentum * v + g``, then ``p <- p - lr * (g + momentum * v)``. A velocity of zeros is
    the state before the first step. All three are flat, of equal size.
    """
    velocity.mul_(momentum).add_(gradient)
    gradient.add_(velocity, alpha=momentum)
    parameters.add_(gradient, alpha=-lr)
