"""What a model is: it cannot change, says what its fields are, and refuses what no sidecar does."""

import pytest
from pydantic import ValidationError

from safesync.emulator import Contention, EngineModel


def test_a_model_cannot_change(make_model):
    with pytest.raises(ValidationError):
        make_model().client_overhead_s = 1.0


def test_every_field_says_what_it_is():
    models = [EngineModel, Contention]
    for model in models:
        for name, field in model.model_fields.items():
            assert field.description, (model, name)
        inner = [getattr(field, "annotation", None) for field in model.model_fields.values()]
        models += [part for part in inner if hasattr(part, "model_fields")]
    assert len(models) == 4  # with Limits and StepTime


@pytest.mark.parametrize(
    "changes",
    [
        {"step": {"base_s": 0.0}},
        {"step": {"per_decode_s": -0.1}},
        {"step": {"per_layer_s": 1.0}},
        {"contention": ()},
        {"contention": ({"factor": 0.0},)},
        {"overhead_s": -0.1},
        {"overhead_s": float("nan")},
        {"max_num_seqs": 0},
    ],
)
def test_what_no_sidecar_does_is_refused(make_model, changes):
    with pytest.raises(ValidationError):
        make_model(**changes)
