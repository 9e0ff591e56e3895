"""No value of a config ever reaches a shell."""

import ast
import re
import subprocess
from pathlib import Path

import pytest
from security.ill_will import NASTY

RULES = [Path("Snakefile"), *sorted(Path("workflow").rglob("*.smk"))]
PYTHON = [path for room in ("src", "scripts", "benchmarks") for path in Path(room).rglob("*.py")]
# of os and of subprocess: what hands a line to a shell whatever its arguments are
SHELLS = {"system", "popen", "getoutput", "getstatusoutput"}


def shell_rules(text: str) -> list[str]:
    """Return the directives of a rule file that run a command line or inline code."""
    return re.findall(r"^\s*(shell|run)\s*:|\bshell\s*\(", text, re.MULTILINE)


def shell_calls(text: str) -> list[int]:
    """Return the lines of Python code that hand a command line to a shell."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        told = [word.value for word in node.keywords if word.arg == "shell"]
        plainly_false = all(isinstance(one, ast.Constant) and not one.value for one in told)
        if name in SHELLS or not plainly_false:
            found.append(node.lineno)
    return found


def test_no_rule_has_a_command_line():
    assert len(RULES) > 8
    for path in RULES:
        assert shell_rules(path.read_text()) == [], path


def test_no_code_calls_a_shell():
    assert len(PYTHON) > 100
    for path in PYTHON:
        assert shell_calls(path.read_text()) == [], path


def test_a_rule_with_a_command_line_is_found():
    assert shell_rules('rule a:\n    shell:\n        "echo {params.name}"\n')
    assert shell_rules("rule a:\n    run:\n        pass\n")
    assert shell_rules('shell("echo")')
    assert not shell_rules('rule a:\n    script:\n        "a.py"\n')


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.system(name)",
        "os.popen(name)",
        "subprocess.run(name, shell=True)",
        "Popen(name, shell=how)",
        "from subprocess import getoutput\ngetoutput(name)",
    ],
)
def test_a_call_of_a_shell_is_found(code):
    assert shell_calls(code)


def test_lists_of_arguments_are_no_shell():
    assert shell_calls("subprocess.run([name])\nsubprocess.run([name], shell=False)") == []


def pwned(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("pwned*") if path.is_file()]


def test_a_shell_would_have_run_what_the_config_holds(tmp_path):
    subprocess.run(f"echo {NASTY}", shell=True, cwd=tmp_path, check=True)
    assert pwned(tmp_path) == [tmp_path / "pwned"]


def test_a_measurement_with_such_a_config_runs_none_of_it(measured):
    assert len(list(measured.project.folder.glob(f"*{NASTY[:8]}*"))) == 3
    assert pwned(measured.project.folder) == []
    assert not Path("pwned").exists()
