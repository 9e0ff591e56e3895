"""Finding a policy by name, without importing any other; or in a user's file, by its path."""

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import traceback
from pathlib import Path
from types import ModuleType

from pydantic import BaseModel

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


def load_policy_file(path: str | Path) -> type[Policy]:
    """Return the policy class that the Python file ``path`` declares as its attribute ``POLICY``.

    The file is run, with all rights of this process, each time it is asked for. The contract is
    that of a built-in policy; ``name`` is free.

    Raises ValueError, in one sentence that names the file, when it is missing, fails to run (with
    the line), has no POLICY, or one that breaks the contract.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"policy file {path}: no such file")
    module = _run_file(path)
    policy = getattr(module, "POLICY", None)
    fault = _fault(policy)
    if fault is not None:
        raise ValueError(f"policy file {path}: {fault}")
    return policy


def find_policy(name: str | None, file: str | Path | None) -> type[Policy]:
    """Return the built-in policy ``name``, or that of ``file``; just one of them may be given.

    Raises ValueError as ``load_policy`` and ``load_policy_file`` do, or when none or both are
    given.
    """
    if (name is None) == (file is None):
        raise ValueError(f"a policy is given by name or by file, found {name!r} and {file!r}")
    return load_policy(name) if file is None else load_policy_file(file)


def _run_file(path: Path) -> ModuleType:
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    name = f"safesync_policy_file_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ValueError(f"policy file {path}: not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic resolves a model's annotations in its module
    try:
        # compiled here, not by the loader, whose cache would miss an edit within one second
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        said = " ".join(str(getattr(error, "msg", None) or error).split())
        raise ValueError(
            f"policy file {path}, line {_line(error, path)}: {type(error).__name__}: {said}"
        ) from error
    return module


def _line(error: BaseException, path: Path) -> int | None:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return lines[-1] if lines else None


def _fault(policy: object) -> str | None:
    if policy is None:
        return "no attribute POLICY; end it with POLICY = YourPolicy"
    if not (isinstance(policy, type) and issubclass(policy, Policy)):
        return f"POLICY must be a subclass of safesync.policies.Policy, found {policy!r}"
    if inspect.isabstract(policy):
        return f"{policy.__name__} does not define {', '.join(sorted(policy.__abstractmethods__))}"
    if not isinstance(getattr(policy, "name", None), str):
        return f"{policy.__name__} has no name; set name = 'my_policy'"
    parameters = policy.Parameters
    if not (isinstance(parameters, type) and issubclass(parameters, BaseModel)):
        return f"{policy.__name__}.Parameters must be a pydantic model, found {parameters!r}"
    if not parameters.__pydantic_complete__:
        return f"{policy.__name__}.Parameters is not fully defined; an annotation names nothing"
    if parameters.model_config.get("extra") != "forbid":
        return f"{policy.__name__}.Parameters must set model_config = ConfigDict(extra='forbid')"
    return None


def _modules() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))


def _policy(name: str) -> type[Policy] | None:
    return getattr(importlib.import_module(f"safesync.policies.{name}"), "POLICY", None)
