from pathlib import Path

import pytest

from safesync.sources import beside, imports, library

ROOT = Path("src/safesync")


def test_a_policy_brings_itself_and_no_other_policy():
    files = library("policies.fixed_h")
    assert "src/safesync/policies/fixed_h.py" in files
    assert "src/safesync/policies/wa_diloco.py" not in files
    assert "src/safesync/placement/corridor.py" in files


def test_a_room_brings_all_its_files_and_what_they_import():
    files = library("protocol")
    assert {str(path) for path in (ROOT / "protocol").glob("*.py")} <= set(files)
    assert "src/safesync/tables/base.py" in files
    assert not [file for file in files if "/report/" in file]


def test_judging_does_not_depend_on_the_measurement():
    assert not [file for file in library("protocol") if "/sidecar/" in file]


def test_the_packages_that_a_module_stands_in_are_part_of_it():
    found = imports(Path("src/safesync/policies/fixed_h.py").resolve())
    assert Path("src/safesync/policies/__init__.py").resolve() in found


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="no room or module 'placemnt'"):
        library("placemnt")


def test_files_beside_a_policy_are_found_through_each_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "mine.py").write_text(
        "import numpy\nfrom near import X\n\ndef f():\n    import far.x\n"
    )
    (folder / "near.py").write_text("import mine, deep\n")
    (folder / "deep.py").write_text("def broken(:\n")
    (tmp_path / "far.py").write_text("import os\n")
    (tmp_path / "other.py").touch()
    assert beside("policies/mine.py") == ["far.py", "policies/deep.py", "policies/near.py"]
    assert beside("policies/absent.py") == []
