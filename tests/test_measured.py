from pathlib import Path

import pytest

from safesync import measured
from safesync.sidecar.version import MEASUREMENT_VERSION


def test_every_change_of_the_measurement_is_weighed():
    last = measured.entries()[-1]
    assert (last["version"], last["sources"]) == (
        MEASUREMENT_VERSION,
        measured.sources_sha256(),
    ), (
        "the code of measurements changed: raise MEASUREMENT_VERSION if that alters what is "
        'measured, and record it with `python -m safesync.measured "why"`'
    )


def test_a_comment_in_a_measurement_room_is_noticed(tmp_path, monkeypatch):
    changed = tmp_path / "changed.py"
    files = measured.library("sidecar", "outer")
    before = measured.sources_sha256()
    changed.write_text("# a comment\n")
    monkeypatch.setattr(measured, "library", lambda *rooms: [*files, str(changed)])
    assert measured.sources_sha256() != before


@pytest.mark.parametrize("file", ["scripts/measure.py", "workflow/rules/measure.smk"])
def test_the_flow_of_a_measurement_is_weighed_too(file, monkeypatch):
    before = measured.sources_sha256()
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b"#" * (path == Path(file)))
    assert measured.sources_sha256() != before


def test_the_record_only_grows_in_version():
    versions = [entry["version"] for entry in measured.entries()]
    assert versions == sorted(versions)
    assert all(entry["why"].strip() for entry in measured.entries())
