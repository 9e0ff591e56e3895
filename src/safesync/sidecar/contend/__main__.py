"""Entry point: one rank of the contention."""

import os
import sys
from functools import partial

from safesync.learners.lifetime import end_with_signal_or_parent


def main() -> None:
    """Run the rank that the command line names."""
    if len(sys.argv) != 3 or not sys.argv[2].isdecimal():
        sys.exit("usage: python -m safesync.sidecar.contend PLAN.json RANK")
    path, rank = sys.argv[1], int(sys.argv[2])
    cleanups = []
    end_with_signal_or_parent(f"contend rank {rank}", cleanups)
    # imported only now: the numeric libraries start threads, which must not take the signals
    from safesync.outer import DeviceError, NonFiniteError, PeerLostError, remove_unfinished
    from safesync.sidecar.contend.plan import Plan
    from safesync.sidecar.contend.rank import run
    from safesync.tables import TableError
    from safesync.tables.plans import PlanError, read_plan

    try:
        plan = read_plan(path, Plan)
        if rank >= plan.ranks:
            raise PlanError(f"{path}: ranks is {plan.ranks}, so there is no rank {rank}")
        if rank == 0:
            cleanups.append(partial(remove_unfinished, plan.checkpoint_dir))
        run(plan, rank)
    except (PlanError, DeviceError, PeerLostError, NonFiniteError, TableError, OSError) as error:
        print(f"contend rank {rank}: {error}", file=sys.stderr, flush=True)
        # not sys.exit: torch may wait for the lost peer when it tears its process group down
        os._exit(1)


main()
