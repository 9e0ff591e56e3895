"""Work beside the sidecar that no merge causes, the same in every measurement of a regime.

``python -m safesync.sidecar.background PLAN.json INDEX`` is one of its processes: another tenant's
(``load``) or an island's inner steps (``training``). ``start.Background`` starts them before every
measurement alike, merges or not. Each waits for the go and then works until the parent makes the
stop file; what it really did is written then. Exit status: 0 when it was stopped so; 143 or 130 on
SIGTERM or SIGINT, at once; 1 otherwise, with one sentence on stderr. It exits within two seconds of
its parent's death.
"""
