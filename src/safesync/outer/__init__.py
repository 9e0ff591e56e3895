"""The DiLoCo outer merge: reduce of pseudo-gradients, Nesterov step, checkpoint.

One implementation for every caller, in rounds of one fragment of the model each. Ranks meet through
``join``; this room neither starts processes nor decides when to merge.
"""

from safesync.outer.checkpoint import CheckpointError, remove_unfinished, write_durably
from safesync.outer.collectives import PeerLostError, broadcast_, gather, waiting_for
from safesync.outer.fragments import Fragment, split
from safesync.outer.group import DeviceError, join
from safesync.outer.merge import NonFiniteError, OuterMerge, RoundCost, payload_bytes

__all__ = [
    "CheckpointError",
    "DeviceError",
    "Fragment",
    "NonFiniteError",
    "OuterMerge",
    "PeerLostError",
    "RoundCost",
    "broadcast_",
    "gather",
    "join",
    "payload_bytes",
    "remove_unfinished",
    "split",
    "waiting_for",
    "write_durably",
]
