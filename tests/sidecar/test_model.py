import json

import pytest

from safesync.sidecar.model import ModelError, check_model, prepare_model, vocabulary_size

FOLDER = {"source": "folder", "revision": None, "trust_remote_code": False}


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": 7}))
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_a_local_folder_is_linked_and_summed(tmp_path, model):
    sums = prepare_model(FOLDER | {"id": str(model)}, tmp_path / "prepared")
    assert set(sums) == {"config.json", "model.safetensors"}
    assert (tmp_path / "prepared/model.safetensors").read_bytes() == b"weights"
    assert vocabulary_size(tmp_path / "prepared") == 7
    (model / "model.safetensors").write_bytes(b"other weights")
    assert check_model(tmp_path / "prepared") != sums


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "a.ckpt", "a.pkl", "a.pth"])
def test_pickled_weights_are_refused_beside_safe_ones(tmp_path, model, name):
    (model / name).write_bytes(b"")
    with pytest.raises(ModelError, match=r"only safetensors are served"):
        prepare_model(FOLDER | {"id": str(model)}, tmp_path / "prepared")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_code_of_the_models_own_needs_a_yes(tmp_path, model):
    (model / "config.json").write_text(json.dumps({"auto_map": {"AutoModel": "m.M"}}))
    with pytest.raises(ModelError, match="trust_remote_code: true"):
        prepare_model(FOLDER | {"id": str(model)}, tmp_path / "prepared")
    prepare_model(FOLDER | {"id": str(model), "trust_remote_code": True}, tmp_path / "prepared")


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_an_incomplete_folder_is_named(tmp_path, model, missing):
    (model / missing).unlink()
    with pytest.raises(ModelError, match=r"no config\.json|no \*\.safetensors"):
        check_model(model)


def test_an_unknown_package_is_named(tmp_path):
    with pytest.raises(ModelError, match="no installed package 'no_such_package'"):
        prepare_model(FOLDER | {"source": "package", "id": "no_such_package"}, tmp_path / "p")
    assert list(tmp_path.iterdir()) == []
