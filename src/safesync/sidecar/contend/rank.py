"""One rank: meet the others, warm up, wait for the go, merge in every window."""

import os
import time
from datetime import timedelta
from pathlib import Path

import pandas as pd
import torch
import torch.distributed as dist

from safesync.outer import OuterMerge, PeerLostError, RoundCost, broadcast_, gather, waiting_for
from safesync.sidecar.contend.cursor import Cursor, Share
from safesync.sidecar.contend.island import Island
from safesync.sidecar.contend.pace import Pace
from safesync.sidecar.contend.plan import Plan, PlanError, Window
from safesync.tables import read_document
from safesync.tables.merges import MERGES

_GO_POLL_S = 0.05
_INITIAL_SCALE = 0.02


def run(plan: Plan, rank: int) -> None:
    """Run one rank from rendezvous to the last window; rank 0 then writes the table.

    The table's metadata is everything the parent wrote to ``plan.go``, and the plan's sizes.
    ``start_s`` is the first rank's and ``end_s`` the last rank's; seconds per phase, rounds and
    bytes are rank 0's sums over the window. Raises PlanError, PeerLostError, NonFiniteError,
    CheckpointError, TableError.
    """
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    device = _device(plan, rank)
    _meet(plan, rank)
    merger = Merger(plan, rank, device)
    merger.warm_up()
    Path(f"{plan.ready}.{rank}").touch()
    go = _wait_for_go(plan.go)
    rows = [merger.run_window(window, go["t0_ns"]) for window in plan.windows]
    dist.destroy_process_group()
    if rank == 0:
        sizes = plan.model_dump(
            include={"ranks", "backend", "merge_s", "parameters", "fragment_parameters"}
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
        self._merge_s = plan.merge_s
        self._cursor = Cursor(plan.parameters, plan.fragment_parameters)
        self._island = Island(rank, device)
        self._pace = Pace()
        self._share = torch.zeros(1, dtype=torch.int64, device=device)

    def warm_up(self) -> None:
        """Merge one whole fragment and one part, so that no window pays for a first time."""
        for share in (Share.WHOLE, Share.PART):
            self._round(share)

    def run_window(self, window: Window, t0_ns: int) -> dict:
        """Merge from the window's start, or from now when that is past, to its planned end.

        Returns the window's row of the table 'merges'.
        """
        _sleep_until(t0_ns + round(window.start_s * 1e9))
        start_s = _since(t0_ns)
        costs = []
        try:
            while (share := self._agree(window.start_s + self._merge_s - _since(t0_ns))) > 0:
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

    def _agree(self, left_s: float) -> Share:
        """Return rank 0's choice of the next round, on every rank."""
        if self._rank == 0:
            self._share.fill_(self._pace.choose(left_s, self._cursor.at_boundary))
        broadcast_(self._share, "rank 0's choice of the next round")
        return Share(self._share.item())

    def _round(self, share: Share) -> RoundCost:
        begin = time.monotonic()
        fragment = self._cursor.take(share)
        inner = self._outer_merge.inner_buffer(fragment)
        self._island.train_(self._outer_merge.outer[fragment.range], inner)
        cost = self._outer_merge.round(fragment, inner)
        self._pace.observe(share, time.monotonic() - begin)
        return cost


def _device(plan: Plan, rank: int) -> torch.device:
    if plan.backend == "gloo":
        return torch.device("cpu")
    if torch.cuda.device_count() < plan.ranks:
        raise PlanError(
            f"backend nccl needs one GPU per rank: {plan.ranks} ranks, "
            f"{torch.cuda.device_count()} visible GPUs"
        )
    torch.cuda.set_device(rank)
    return torch.device("cuda", rank)


def _meet(plan: Plan, rank: int) -> None:
    """Join the process group, on the loopback interface only."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    # a lost peer raises in the waiting call instead of aborting the process
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
    timeout = timedelta(seconds=plan.timeout_s)
    with waiting_for(f"the rendezvous of {plan.ranks} ranks at {plan.rendezvous}"):
        store = dist.FileStore(str(plan.rendezvous), plan.ranks)
        dist.init_process_group(
            plan.backend, store=store, rank=rank, world_size=plan.ranks, timeout=timeout
        )


def _wait_for_go(path: Path) -> dict:
    while not path.exists():
        time.sleep(_GO_POLL_S)
    return read_document(path, required=("t0_ns",))


def _sleep_until(deadline_ns: int) -> None:
    while (left_ns := deadline_ns - time.monotonic_ns()) > 0:
        time.sleep(left_ns / 1e9)


def _since(t0_ns: int) -> float:
    return (time.monotonic_ns() - t0_ns) / 1e9
