"""The DiLoCo outer merge: reduce of pseudo-gradients, Nesterov step, checkpoint.

One implementation for every caller, in rounds of one fragment of the model each. Torch's default
process group must exist; this room neither starts processes nor decides when to merge.
"""

from safesync.outer.checkpoint import CheckpointError, remove_unfinished
from safesync.outer.collectives import PeerLostError, average_, broadcast_, gather, waiting_for
from safesync.outer.fragments import Fragment, split
from safesync.outer.merge import NonFiniteError, OuterMerge, RoundCost

__all__ = [
    "CheckpointError",
    "Fragment",
    "NonFiniteError",
    "OuterMerge",
    "PeerLostError",
    "RoundCost",
    "average_",
    "broadcast_",
    "gather",
    "remove_unfinished",
    "split",
    "waiting_for",
]
