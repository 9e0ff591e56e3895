"""One rank: meet the others, warm up, wait for the go, merge in every window."""

import time
from pathlib import Path

import pandas as pd
import psutil
import torch
import torch.distributed as dist

from safesync.outer import OuterMerge, PeerLostError, RoundCost, broadcast_, gather, join
from safesync.sidecar.contend.cursor import Cursor, Share
from safesync.sidecar.contend.island import Island
from safesync.sidecar.contend.plan import Plan, Window
from safesync.sidecar.contend.style import style_of
from safesync.sidecar.go import wait_for_go
from safesync.tables.merges import MERGES

_INITIAL_SCALE = 0.02
_STOP_POLL_S = 0.2


def run(plan: Plan, rank: int) -> None:
    """Run one rank from rendezvous to the last window; rank 0 then writes the table.

    The table's metadata is everything the parent wrote to ``plan.go``, and the plan's sizes.
    ``start_s`` is the first rank's and ``end_s`` the last rank's; seconds per phase, rounds and
    bytes are rank 0's sums over the window. Raises PlanError, DeviceError, PeerLostError,
    NonFiniteError, CheckpointError, TableError.
    """
    if plan.style == "throttled":
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    device = join(
        plan.backend, plan.rendezvous, rank=rank, ranks=plan.ranks, timeout_s=plan.timeout_s
    )
    merger = Merger(plan, rank, device)
    merger.warm_up()
    Path(f"{plan.ready}.{rank}").touch()
    go = wait_for_go(plan.go)
    rows = [
        merger.run_window(window, end_s, go["t0_ns"])
        for window, end_s in zip(plan.windows, plan.ends_s(), strict=True)
    ]
    _wait_for_stop(plan.stop)
    dist.destroy_process_group()
    if rank == 0:
        sizes = plan.model_dump(
            include={
                *("ranks", "backend", "merge_s", "parameters", "fragment_parameters"),
                *("style", "bandwidth_bytes_per_s", "passes"),
            }
        )
        MERGES.write(plan.merges, pd.DataFrame(rows, columns=MERGES.schema.names), go | sizes)


class Merger:
    """A rank's model and its place in it, kept from window to window."""

    def __init__(self, plan: Plan, rank: int, device: torch.device) -> None:
        outer = torch.linspace(-_INITIAL_SCALE, _INITIAL_SCALE, plan.parameters, device=device)
        self._outer_merge = OuterMerge(
            outer, largest_fragment=plan.fragment_parameters, checkpoint_dir=plan.checkpoint_dir
        )
        self._rank = rank
        self._cursor = Cursor(plan.parameters, plan.fragment_parameters)
        self._island = Island(rank, device)
        self._style = style_of(plan)
        self._share = torch.zeros(1, dtype=torch.int64, device=device)

    def warm_up(self) -> None:
        """Merge what the style is made of, so that no window pays for a first time."""
        for share in self._style.warm_up:
            self._round(share)

    def run_window(self, window: Window, end_s: float, t0_ns: int) -> dict:
        """Merge from the window's start, or from now when that is past, to its planned end.

        Returns the window's row of the table 'merges'.
        """
        _sleep_until(t0_ns + round(window.start_s * 1e9))
        start_s = _since(t0_ns)
        costs = []
        try:
            while (share := self._next(costs, window.start_s, end_s, t0_ns)) is not Share.NONE:
                costs.append(self._round(share))
            times = torch.tensor(
                [start_s, _since(t0_ns)], dtype=torch.float64, device=self._share.device
            )
            starts, ends = gather(times, "the times of all ranks").T
        except PeerLostError as error:
            raise PeerLostError(f"{error} in merge {window.merge}") from error
        return {
            "merge": window.merge,
            "step": window.step,
            "planned_s": window.start_s,
            "start_s": starts.min().item(),
            "end_s": ends.max().item(),
            "reduce_s": sum(cost.reduce_s for cost in costs),
            "optimizer_s": sum(cost.optimizer_s for cost in costs),
            "checkpoint_s": sum(cost.checkpoint_s for cost in costs),
            "reduced_bytes": sum(cost.reduced_bytes for cost in costs),
            "written_bytes": sum(cost.written_bytes for cost in costs),
            "rounds": len(costs),
        }

    def _next(self, costs: list[RoundCost], start_s: float, end_s: float, t0_ns: int) -> Share:
        """Sleep until a round or the end is due; return rank 0's choice of it, on every rank."""
        due_s = start_s + self._style.due_s(costs, end_s - start_s)
        _sleep_until(t0_ns + round(due_s * 1e9))
        if self._rank == 0:
            left_s = end_s - _since(t0_ns)
            self._share.fill_(self._style.choose(costs, left_s, self._cursor.at_boundary))
        broadcast_(self._share, "rank 0's choice of the next round")
        return Share(self._share.item())

    def _round(self, share: Share) -> RoundCost:
        begin = time.monotonic()
        fragment = self._cursor.take(share)
        inner = self._outer_merge.inner_buffer(fragment)
        self._island.train_(self._outer_merge.outer[fragment.range], inner)
        cost = self._outer_merge.round(fragment, inner)
        self._style.observe(share, time.monotonic() - begin)
        return cost


def _wait_for_stop(path: Path) -> None:
    # the end of torch's processes takes the cores for seconds, which no merge of training does
    while not path.exists():
        time.sleep(_STOP_POLL_S)


def _sleep_until(deadline_ns: int) -> None:
    while (left_ns := deadline_ns - time.monotonic_ns()) > 0:
        time.sleep(left_ns / 1e9)


def _since(t0_ns: int) -> float:
    return (time.monotonic_ns() - t0_ns) / 1e9
