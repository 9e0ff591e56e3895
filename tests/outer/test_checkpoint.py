import errno
import json
import os
from pathlib import Path

import pytest
import torch

from safesync.outer import CheckpointError, Fragment
from safesync.outer.checkpoint import (
    FragmentState,
    read_fragments,
    remove_unfinished,
    write_fragment,
)


def _state(start=0, stop=8, round=1):
    size = stop - start
    return FragmentState(
        Fragment(start, stop), round, torch.arange(size) + float(round), torch.full((size,), 0.5)
    )


def test_reads_what_was_written_oldest_round_first(tmp_path):
    write_fragment(tmp_path, _state(round=7))
    write_fragment(tmp_path, _state(stop=4, round=3))
    older, newer = read_fragments(tmp_path)
    assert (older.round, newer.round) == (3, 7)
    assert newer.fragment == Fragment(0, 8)
    assert torch.equal(newer.outer, _state(round=7).outer)
    assert torch.equal(newer.velocity, _state(round=7).velocity)


def test_same_fragment_replaces_its_file(tmp_path):
    for round in range(1, 5):
        written = write_fragment(tmp_path, _state(round=round))
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size == written
    assert read_fragments(tmp_path)[0].round == 4


def test_file_is_safetensors_not_pickle(tmp_path):
    write_fragment(tmp_path, _state())
    raw = next(tmp_path.iterdir()).read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    assert {header[name]["dtype"] for name in ("outer", "velocity")} == {"F32"}
    assert len(raw) == 8 + length + 2 * 8 * 4


def test_fsyncs_the_file_before_and_the_folder_after_the_rename(tmp_path, monkeypatch):
    synced = []

    def record(descriptor):
        visible = any(not path.name.startswith(".") for path in tmp_path.iterdir())
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink(), visible))

    monkeypatch.setattr(os, "fsync", record)
    write_fragment(tmp_path, _state())
    (file, file_visible), (folder, folder_visible) = synced
    assert (file.parent, file_visible) == (tmp_path, False)
    assert (folder, folder_visible) == (tmp_path, True)


def test_failed_write_leaves_the_old_state_and_nothing_else(tmp_path, monkeypatch):
    write_fragment(tmp_path, _state(round=1))

    def fail(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CheckpointError, match=r"outer-0+-0+8\.safetensors.*No space left"):
        write_fragment(tmp_path, _state(round=2))
    assert len(list(tmp_path.iterdir())) == 1
    assert read_fragments(tmp_path)[0].round == 1


def test_missing_folder_and_foreign_file_are_refused_by_name(tmp_path):
    with pytest.raises(CheckpointError, match="nowhere"):
        write_fragment(tmp_path / "nowhere", _state())
    (tmp_path / "outer-x.safetensors").write_bytes(b"\x80\x04not safetensors")
    with pytest.raises(CheckpointError, match=r"outer-x\.safetensors: not a checkpoint"):
        read_fragments(tmp_path)


def test_unfinished_files_are_removed_and_finished_ones_kept(tmp_path):
    write_fragment(tmp_path, _state())
    (finished,) = tmp_path.iterdir()
    (tmp_path / f".{finished.name}.tmp").write_bytes(b"half")
    remove_unfinished(tmp_path)
    assert list(tmp_path.iterdir()) == [finished]
