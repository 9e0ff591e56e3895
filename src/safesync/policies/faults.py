"""Sentences for what goes wrong inside a policy's own code, so that they name the policy."""

import inspect
import traceback

from safesync.policies.base import Policy, shown


def on_purpose(policy: Policy, error: BaseException) -> bool:
    """Whether ``error`` is the refusal of a built-in policy, whose text stands for itself."""
    built_in = type(policy).__module__.startswith("safesync.policies.")
    return built_in and isinstance(error, ValueError)


def failure(policy: Policy, method: str, when: str, error: BaseException) -> str:
    """Return one sentence for ``error``, raised by ``policy``'s ``method``.

    when: "" or such as " at 8 s". The place is the innermost line of the policy's own file.
    """
    said = " ".join(str(error).split())
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    place = _raised_at(policy, error) or _defined_at(policy, method)
    return f"{policy.name}: {method} failed{when} with {what} ({place})"


def no_decision(policy: Policy, when: str, answer: object) -> str:
    """Return one sentence for an ``answer`` of ``decide`` that is no Decision."""
    return (
        f"{policy.name}: decide answered {shown(answer)}{when}, expected a Decision "
        f"({_defined_at(policy, 'decide')})"
    )


def _raised_at(policy: Policy, error: BaseException) -> str | None:
    walked = traceback.walk_tb(error.__traceback__)
    frames = [(frame.f_code.co_filename, line) for frame, line in walked]
    for one in type(policy).__mro__:
        members = [getattr(member, "__func__", member) for member in vars(one).values()]
        files = {member.__code__.co_filename for member in members if inspect.isfunction(member)}
        own = [f"{file}:{line}" for file, line in frames if file in files]
        if own:
            return own[-1]
    return None


def _defined_at(policy: Policy, method: str) -> str:
    code = getattr(getattr(type(policy), method), "__code__", None)
    if code is None:
        return type(policy).__qualname__
    return f"{code.co_filename}:{code.co_firstlineno}"
