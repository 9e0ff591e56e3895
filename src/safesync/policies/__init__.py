"""Synchronization policies: when to merge, decided from the past alone; and their controls.

- ``base``: the contract (``Observation``, ``Decision``, ``Policy``); one further file per policy,
  whose module attribute ``POLICY`` is its class. ``load_policy`` imports one by name, so that
  editing one policy concerns no other.
- ``observe``: what a policy can see of a block; ``replay``: the engine that walks a policy through
  a block and enforces the corridor; ``controls``: random schedules of the same budget.
"""

from safesync.policies.base import Block, Decision, Observation, Policy, Signals
from safesync.policies.load import load_policy, policy_names

__all__ = [
    "Block",
    "Decision",
    "Observation",
    "Policy",
    "Signals",
    "load_policy",
    "policy_names",
]
