"""Entry point: one island of a training run."""

import os
import sys
from functools import partial

from safesync.learners.lifetime import end_with_signal_or_parent


def main() -> None:
    """Run the island that the command line names."""
    if len(sys.argv) != 4 or not "".join(sys.argv[2:]).isdecimal():
        sys.exit("usage: python -m safesync.learners PLAN.json ISLAND PARENT_PID")
    path, rank, parent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    cleanups = []
    end_with_signal_or_parent(f"island {rank}", cleanups, parent)
    # imported only now: the numeric libraries start threads, which must not take the signals
    from safesync.learners.island import DamagedError, run
    from safesync.learners.settings import DAMAGED, LOST_A_PEER, Plan
    from safesync.outer import DeviceError, NonFiniteError, PeerLostError, remove_unfinished
    from safesync.tables.plans import read_plan

    status = 1
    try:
        plan = read_plan(path, Plan)
        if rank == 0:
            cleanups.append(partial(remove_unfinished, plan.checkpoints))
        run(plan, rank)
        return
    except PeerLostError as error:
        status, said = LOST_A_PEER, error
    except DamagedError as error:
        status, said = DAMAGED, error
    except (NonFiniteError, DeviceError, ValueError, OSError) as error:
        said = error
    print(said, file=sys.stderr, flush=True)
    # not sys.exit: torch may wait for the lost peer when it tears its process group down
    os._exit(status)


main()
