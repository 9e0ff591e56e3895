"""Entry point: one process of the background."""

import os
import sys

from safesync.learners.lifetime import end_with_signal_or_parent


def main() -> None:
    """Run the process that the command line names."""
    if len(sys.argv) != 3 or not sys.argv[2].isdecimal():
        sys.exit("usage: python -m safesync.sidecar.background PLAN.json INDEX")
    path, index = sys.argv[1], int(sys.argv[2])
    cleanups = []
    end_with_signal_or_parent(f"background process {index}", cleanups)
    # imported only now: the numeric libraries start threads, which must not take the signals, and
    # read once how many to compute with
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    from safesync.sidecar.background.plan import Plan
    from safesync.sidecar.background.process import run
    from safesync.tables import TableError
    from safesync.tables.plans import PlanError, read_plan

    try:
        run(read_plan(path, Plan), index, cleanups)
    except (PlanError, TableError, ValueError, OSError) as error:
        print(f"background process {index}: error: {error}", file=sys.stderr, flush=True)
        # not sys.exit: another of its threads may be inside a write that takes long
        os._exit(1)


main()
