"""model.json: written, read back, and refused when it is somebody else's."""

import json

import pytest
from pydantic import ValidationError

from safesync.emulator import EngineModel, ModelError, read_model, write_model
from safesync.tables import TableError


@pytest.fixture
def stored(make_model, tmp_path):
    path = tmp_path / "model.json"
    write_model(path, make_model(contention=({"phase": "reduce", "factor": 1.5}, {"factor": 2.0})))
    return path


def edit(path, change):
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_a_model_survives_its_file(stored, make_model):
    model = read_model(stored, sidecar="tiny-0001", regime="bursty")
    expected = make_model(contention=({"phase": "reduce", "factor": 1.5}, {"factor": 2.0}))
    assert model == expected
    assert [path.name for path in stored.parent.iterdir()] == ["model.json"]


def test_another_sidecar_or_regime_is_refused(stored):
    with pytest.raises(ModelError, match="for sidecar 'tiny-0001', expected 'big-0002'"):
        read_model(stored, sidecar="big-0002", regime="bursty")
    with pytest.raises(ModelError, match="for regime 'bursty', expected 'steady'"):
        read_model(stored, sidecar="tiny-0001", regime="steady")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: d.update(version=2), "model version 2, expected 1"),
        (lambda d: d["step"].update(base_s=-1.0), "field 'step.base_s'"),
        (lambda d: d["step"].update(per_layer_s=1.0), "field 'step.per_layer_s'"),
        (lambda d: d.pop("limits"), "field 'limits'"),
        (lambda d: d["contention"].clear(), "field 'contention'"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_sentence(stored, change, sentence):
    edit(stored, change)
    with pytest.raises(ModelError, match=sentence) as caught:
        read_model(stored, sidecar="tiny-0001", regime="bursty")
    assert str(stored) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_without_a_version_is_no_model(stored):
    edit(stored, lambda document: document.pop("version"))
    with pytest.raises(TableError, match="no field 'version'"):
        read_model(stored, sidecar="tiny-0001", regime="bursty")


def test_a_model_cannot_change(make_model):
    with pytest.raises(ValidationError):
        make_model().client_overhead_s = 1.0


def test_every_field_says_what_it_is():
    models = [EngineModel]
    for model in models:
        for name, field in model.model_fields.items():
            assert field.description, (model, name)
        inner = [getattr(field, "annotation", None) for field in model.model_fields.values()]
        models += [part for part in inner if hasattr(part, "model_fields")]
