"""Policies by name, and what every policy file must declare."""

import importlib
import subprocess
import sys

import pytest
from pydantic import BaseModel

from safesync.policies import Policy, find_policy, load_policy, load_policy_file, policy_names
from safesync.policies.replay import decide_schedule


def test_names_are_those_of_the_files():
    assert policy_names() == [
        "adaptive_load",
        "adaptive_tokens",
        "fixed_h",
        "nosync",
        "pressure_gate",
        "random_deferral",
        "wa_diloco",
        "wa_forecast",
        "wa_horizon",
        "wa_mmpp",
        "wa_offline",
    ]


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


MINE = """
from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from safesync.policies import Decision, Policy


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    h: int | None = 300


class Mine(Policy):
    name = "mine"
    Parameters = Parameters

    def decide(self, observation):
        return Decision(merge=observation.gap >= self.parameters.h)


POLICY = Mine
"""


def written(tmp_path, text):
    path = tmp_path / "my_policy.py"
    path.write_text(text)
    return path


def test_a_users_policy_runs(tmp_path, corridor, flat):
    policy = load_policy_file(written(tmp_path, MINE))
    rows, facts = decide_schedule(policy(policy.Parameters(h=400)), corridor, flat())
    assert rows["step"].tolist() == [400, 800, 1200]
    assert facts["policy"] == "mine"
    assert "mine" not in policy_names()


def test_a_policy_is_found_by_name_or_by_file(tmp_path):
    assert find_policy("fixed_h", None) is load_policy("fixed_h")
    assert find_policy(None, written(tmp_path, MINE)).name == "mine"
    for both_or_none in ((None, None), ("fixed_h", tmp_path / "my_policy.py")):
        with pytest.raises(ValueError, match="by name or by file"):
            find_policy(*both_or_none)


def test_an_edited_file_is_run_anew(tmp_path):
    path = written(tmp_path, MINE)
    assert load_policy_file(str(path)).Parameters().h == 300
    written(tmp_path, MINE.replace("= 300", "= 301"))
    assert load_policy_file(path).Parameters().h == 301


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("POLICY = Mine", "", "no attribute POLICY"),
        ("POLICY = Mine", "POLICY = Mine()", "POLICY must be a subclass of"),
        ("POLICY = Mine", "POLICY = int", "POLICY must be a subclass of .*found <class 'int'>"),
        ("def decide", "def decides", "Mine does not define decide"),
        ('name = "mine"', "", "Mine has no name"),
        (
            "Parameters = Parameters",
            "Parameters = dict",
            "Mine.Parameters must be a pydantic model",
        ),
        (
            'extra="forbid", ',
            "",
            r"Mine.Parameters must set model_config = ConfigDict\(extra='forbid'\)",
        ),
        ("POLICY = Mine", "POLICY = Mien", r"line 23: NameError: name 'Mien' is not defined"),
        ("POLICY = Mine", "POLICY = = Mine", r"line 23: SyntaxError: invalid syntax"),
        ("POLICY = Mine", "import no_such_room", r"line 23: ModuleNotFoundError: No module"),
        ("POLICY = Mine", "raise SystemExit(3)", r"line 23: SystemExit: 3"),
        ("    h: int", "    h: nothing", "Mine.Parameters is not fully defined"),
    ],
)
def test_a_faulty_file_is_one_sentence(tmp_path, old, new, fault):
    assert MINE.count(old) == 1
    path = written(tmp_path, MINE.replace(old, new))
    with pytest.raises(ValueError, match=rf"^policy file {path}(:|,) ?{fault}") as error:
        load_policy_file(path)
    assert "\n" not in str(error.value)


def test_a_missing_file_and_one_of_another_kind(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.py: no such file"):
        load_policy_file(tmp_path / "nowhere.py")
    other = tmp_path / "policy.txt"
    other.write_text(MINE)
    with pytest.raises(ValueError, match=r"policy\.txt: not a Python file"):
        load_policy_file(other)
