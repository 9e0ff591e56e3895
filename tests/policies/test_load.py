"""Policies by name, and what every policy file must declare."""

import importlib
import subprocess
import sys

import pytest
from pydantic import BaseModel

from safesync.policies import Policy, load_policy, policy_names


def test_names_are_those_of_the_files():
    assert policy_names() == ["fixed_h", "nosync", "wa_diloco", "wa_forecast"]


@pytest.mark.parametrize("name", policy_names())
def test_every_policy_declares_itself(name):
    policy = load_policy(name)
    assert issubclass(policy, Policy)
    assert policy.name == name
    assert policy is importlib.import_module(f"safesync.policies.{name}").POLICY
    assert issubclass(policy.Parameters, BaseModel)
    assert policy.Parameters.model_config["extra"] == "forbid"
    assert isinstance(policy.deployable, bool)
    assert "Source" in policy.__doc__ or "After" in policy.__doc__
    for field in policy.Parameters.model_fields.values():
        assert "Source" in field.description


@pytest.mark.parametrize(
    ("name", "near"),
    [("wa_dilco", "wa_diloco"), ("fixedh", "fixed_h"), ("controls", None), ("../base", None)],
)
def test_unknown_name_is_one_sentence_with_the_nearest(name, near):
    with pytest.raises(ValueError, match=f"unknown policy '{name}'") as error:
        load_policy(name)
    assert "\n" not in str(error.value)
    if near:
        assert f"'{near}'" in str(error.value)


def test_loading_one_policy_imports_no_other():
    code = (
        "import sys\n"
        "from safesync.policies import load_policy\n"
        "load_policy('fixed_h')\n"
        "room = 'safesync.policies.'\n"
        "loaded = {m.removeprefix(room) for m in sys.modules if m.startswith(room)}\n"
        "sys.exit(str(loaded) if loaded != {'base', 'load', 'fixed_h'} else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_parameters_of_another_policy_are_refused():
    with pytest.raises(TypeError, match="fixed_h: parameters must be"):
        load_policy("fixed_h")(load_policy("wa_diloco").Parameters())
