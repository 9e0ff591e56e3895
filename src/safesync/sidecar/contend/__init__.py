"""The contention: real DiLoCo outer merges in given windows, by ranks beside the sidecar.

``python -m safesync.sidecar.contend PLAN.json RANK`` is one rank; its parent starts one process per
rank, with the affinity and priority it wants, and hands over through files (see ``plan`` and
``rank``). Ranks meet through a shared file, and gloo listens on the loopback interface only. Exit
status: 0 when every window was run; 143 or 130 on SIGTERM or SIGINT, at once; 1 otherwise, with one
sentence on stderr. A rank whose parent died exits within two seconds.
"""
