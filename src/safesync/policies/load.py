"""Finding a policy by name, without importing any other."""

import difflib
import importlib
import pkgutil
from pathlib import Path

from safesync.policies.base import Policy


def load_policy(name: str) -> type[Policy]:
    """Return the policy class of file ``policies/<name>.py``.

    Raises ValueError, with the nearest known name, when there is none.
    """
    policy = _policy(name) if name in _modules() else None
    if policy is None:
        known = policy_names()
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"unknown policy '{name}'; the nearest known one is '{near}' (of {', '.join(known)})"
        )
    return policy


def policy_names() -> list[str]:
    """Return the names of all built-in policies, sorted; imports each of them."""
    return [name for name in _modules() if _policy(name) is not None]


def _modules() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))


def _policy(name: str) -> type[Policy] | None:
    return getattr(importlib.import_module(f"safesync.policies.{name}"), "POLICY", None)
