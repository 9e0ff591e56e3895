"""Imports point one way, in the order of the rooms."""

import ast
import subprocess
from pathlib import Path

import pytest

import safesync

ROOT = Path(safesync.__file__).parent
ROOMS = (
    "tables",
    "workload",
    "placement",
    "policies",
    "outer",
    "learners",
    "sidecar",
    "emulator",
    "protocol",
    "report",
)
FRONT = {
    "company",
    "config",
    "config_files",
    "job",
    "measured",
    "plan",
    "published",
    "schema",
    "show",
    "sources",
}


def imported_rooms(text: str) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return {name.split(".")[1] for name in names if name.startswith("safesync.")}


def violations(room: str, text: str) -> set[str]:
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    return (imported_rooms(text) & {*ROOMS, *FRONT}) - allowed


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_earlier_rooms(room):
    for file in (ROOT / room).rglob("*.py"):
        assert violations(room, file.read_text()) == set(), file


def test_a_wrong_way_import_is_caught():
    assert violations("placement", "from safesync.report import build") == {"report"}
    assert violations("tables", "import safesync.config") == {"config"}


def test_every_room_says_what_it_is_for():
    assert {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()} == set(ROOMS)
    for room in ROOMS:
        assert ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text())), room
    top = {path.stem for path in ROOT.glob("*.py")} - {"__init__"}
    assert top == FRONT


def test_no_file_names_a_registry_or_a_path_of_a_machine():
    hosts = ["pypi" + ".org", "python" + "hosted", "/ro" + "ot/", "/wo" + "rk/", "/opt/" + "pypi"]
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert len(listed) > 100
    for path in map(Path, listed):
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="ignore")
            assert not [host for host in hosts if host in text], path
