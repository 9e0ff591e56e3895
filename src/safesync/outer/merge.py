"""One outer merge, fragment by fragment, with each phase timed."""

import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from safesync.outer.checkpoint import (
    CheckpointError,
    FragmentState,
    read_fragments,
    write_fragment,
)
from safesync.outer.collectives import broadcast_, sum_
from safesync.outer.fragments import Fragment
from safesync.outer.nesterov import nesterov_step_

_NOT_FINITE, _TOO_LARGE = 1.0, 2.0


class NonFiniteError(ArithmeticError):
    """A pseudo-gradient was refused before any rank applied it; one sentence names the ranks."""


@dataclass(frozen=True)
class RoundCost:
    """What one round took on this rank.

    ``reduce_s`` includes the wait for slower peers. ``reduced_bytes`` is what this rank handed to
    the all-reduce, not what the transport moved; ``written_bytes`` is the size of the checkpoint
    file, 0 on ranks that write none.
    """

    reduce_s: float
    optimizer_s: float
    checkpoint_s: float
    reduced_bytes: int
    written_bytes: int


def payload_bytes(parameters: int, ranks: int) -> int:
    """Return the bytes that each rank hands to the reduce of a fragment: values, and flags."""
    return 4 * (parameters + ranks)


class OuterMerge:
    """The outer state of a model, equal on all ranks, and the round that merges a fragment.

    ``outer`` and ``velocity`` are flat fp32 tensors of all parameters. ``outer`` is taken over,
    not copied, and replaced by rank 0's values, so that all ranks begin alike. The memory held is
    these two and one fragment of at most ``largest_fragment`` parameters. Rank 0 writes a
    checkpoint of every fragment it merged to ``checkpoint_dir``, which must exist. The defaults of
    ``lr`` and ``momentum`` are DiLoCo's (arXiv 2311.08105).
    """

    def __init__(
        self,
        outer: torch.Tensor,
        *,
        largest_fragment: int,
        checkpoint_dir: Path,
        lr: float = 0.7,
        momentum: float = 0.9,
    ) -> None:
        broadcast_(outer, "the initial outer parameters")
        self.outer = outer
        self.velocity = torch.zeros_like(outer)
        self.rounds = 0
        self._exchange = torch.zeros(
            largest_fragment + dist.get_world_size(), dtype=outer.dtype, device=outer.device
        )
        self._checkpoint_dir = checkpoint_dir
        self._lr = lr
        self._momentum = momentum

    def inner_buffer(self, fragment: Fragment) -> torch.Tensor:
        """Return room for the fragment's inner values, for a caller that has none of its own.

        It is valid until the next round and may be passed to that round.
        """
        return self._exchange[: fragment.size]

    def round(self, fragment: Fragment, inner: torch.Tensor) -> RoundCost:
        """Merge one fragment on all ranks; every rank must call it with the same fragment.

        ``inner`` is this rank's flat fp32 values of the fragment after its local steps, and is
        overwritten by the merged outer values. Raises NonFiniteError on every rank, with the outer
        state untouched, when any rank's pseudo-gradient (outer - inner) is not finite;
        PeerLostError; CheckpointError.
        """
        begin = time.monotonic()
        gradient_sum, reduced_bytes = self._reduce(fragment, inner)
        reduced = time.monotonic()
        outer, velocity = self.outer[fragment.range], self.velocity[fragment.range]
        nesterov_step_(
            outer,
            velocity,
            gradient_sum,
            count=dist.get_world_size(),
            lr=self._lr,
            momentum=self._momentum,
        )
        inner.copy_(outer)
        if outer.is_cuda:
            torch.cuda.synchronize(outer.device)
        stepped = time.monotonic()
        self.rounds += 1
        written_bytes = 0
        if dist.get_rank() == 0:
            state = FragmentState(fragment, self.rounds, outer.cpu(), velocity.cpu())
            written_bytes = write_fragment(self._checkpoint_dir, state)
        written = time.monotonic()
        return RoundCost(
            reduce_s=reduced - begin,
            optimizer_s=stepped - reduced,
            checkpoint_s=written - stepped,
            reduced_bytes=reduced_bytes,
            written_bytes=written_bytes,
        )

    def restore(self) -> None:
        """Load outer parameters, velocity and round number from the checkpoint folder.

        Raises CheckpointError when the files there do not cover every parameter of this model.
        """
        covered = torch.zeros(self.outer.numel(), dtype=torch.bool)
        for state in read_fragments(self._checkpoint_dir):
            if state.fragment.stop > self.outer.numel():
                raise CheckpointError(
                    f"{self._checkpoint_dir}: holds {state.fragment}, but the model has only "
                    f"{self.outer.numel()}"
                )
            self.outer[state.fragment.range].copy_(state.outer)
            self.velocity[state.fragment.range].copy_(state.velocity)
            covered[state.fragment.range] = True
            self.rounds = state.round
        if not covered.all():
            raise CheckpointError(
                f"{self._checkpoint_dir}: holds {int(covered.sum())} of the model's "
                f"{self.outer.numel()} parameters"
            )

    def _reduce(self, fragment: Fragment, inner: torch.Tensor) -> tuple[torch.Tensor, int]:
        """Return the sum of the pseudo-gradients of all ranks, and the bytes handed to the reduce.

        Their mean is the optimizer's to take, in the pass that it makes anyway.
        """
        # one slot per rank rides behind the gradient: every rank learns from the same reduce
        # whose pseudo-gradient is unusable, so that all of them refuse it
        ranks = dist.get_world_size()
        payload = self._exchange[: fragment.size + ranks]
        gradient, flags = payload[: fragment.size], payload[fragment.size :]
        torch.sub(self.outer[fragment.range], inner, out=gradient)
        flags.zero_()
        flags[dist.get_rank()] = _fault(gradient, ranks)
        sum_(payload, f"the reduce of {fragment}")
        for fault, what in (
            (_NOT_FINITE, "not finite on rank {}"),
            (_TOO_LARGE, "so large on rank {} that the sum over ranks overflows"),
        ):
            found = (flags == fault).nonzero().flatten().tolist()
            if found:
                raise NonFiniteError(
                    f"the pseudo-gradient of {fragment} is "
                    f"{what.format(', '.join(map(str, found)))}; it was refused on all ranks"
                )
        return gradient, payload.numel() * payload.element_size()


def _fault(gradient: torch.Tensor, ranks: int) -> float:
    """Return what makes ``gradient`` unusable in a sum over ``ranks``; 0 for nothing."""
    # both ends are NaN when any element is; isfinite() would allocate and take ten times as long
    largest = torch.stack(torch.aminmax(gradient)).abs().max().item()
    if not math.isfinite(largest):
        return _NOT_FINITE
    # so no sum of finite ones can overflow, and need not be looked through again
    return _TOO_LARGE if largest > torch.finfo(gradient.dtype).max / ranks else 0.0
