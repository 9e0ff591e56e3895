"""Synchronization policies: when to merge, decided from the past alone; and their controls.

- ``base``: the contract (``Observation``, ``Decision``, ``Policy``); one further file per policy,
  whose module attribute ``POLICY`` is its class. ``load_policy`` imports one by name, so that
  editing one policy concerns no other.
- ``observe``: what a policy can see of a block; ``replay``: the engine that walks a policy through
  a block and enforces the corridor; ``controls``: random schedules of the same budget.
- ``faults``: sentences for what fails inside a policy.
- ``causality``: the audit of deployable policies; ``stopping``, ``fairness`` and ``foresight``:
  what several policies share (the stopping rule, the guard against starving learners, the
  experiment on forecast errors).
"""

from safesync.policies.base import Block, Decision, Observation, Policy, Signals
from safesync.policies.load import find_policy, load_policy, load_policy_file, policy_names

__all__ = [
    "Block",
    "Decision",
    "Observation",
    "Policy",
    "Signals",
    "find_policy",
    "load_policy",
    "load_policy_file",
    "policy_names",
]
