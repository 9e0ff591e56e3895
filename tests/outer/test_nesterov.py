import torch

from safesync.outer.nesterov import nesterov_step_


def test_equals_torch_sgd_bit_for_bit():
    generator = torch.Generator().manual_seed(1)
    ours = torch.randn(1000, generator=generator)
    theirs = torch.nn.Parameter(ours.clone())
    velocity = torch.zeros(1000)
    optimizer = torch.optim.SGD([theirs], lr=0.7, momentum=0.9, nesterov=True)
    for _ in range(6):
        gradient = torch.randn(1000, generator=generator)
        theirs.grad = gradient.clone()
        optimizer.step()
        nesterov_step_(ours, velocity, 4 * gradient, count=4, lr=0.7, momentum=0.9)
        assert torch.equal(ours, theirs.data)
