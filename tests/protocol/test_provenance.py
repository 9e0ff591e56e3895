import pytest

from safesync.protocol.provenance import ProvenanceError, check_identity, check_settings

SETTINGS = {"horizon_s": 30.0, "merge": {"ranks": 2, "merge_s": 8.0}, "model": "m"}
MANIFEST = {
    "run": "r",
    "regime": "bursty",
    "seed": 1,
    "policy": "wa",
    "draw": 0,
    "horizon_s": 30.0,
    "config": {"merge": {"ranks": 2, "merge_s": 8.0, "end_tolerance_s": 0.25}, "model": "m"},
}


def test_the_measurement_that_was_asked_for_passes():
    check_settings("m.json", MANIFEST, SETTINGS)
    check_identity("m.json", MANIFEST, MANIFEST)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (SETTINGS | {"horizon_s": 60.0}, "m.json: was measured with horizon_s = 30.0, the config"),
        (SETTINGS | {"merge": {"ranks": 4}}, "with merge.ranks = 2, the config says 4; remove"),
        (SETTINGS | {"model": "other"}, "with model = 'm', the config says 'other'"),
        (SETTINGS | {"client": {"nice": 0}}, "with client.nice = None, the config says 0"),
    ],
)
def test_other_settings_are_named(settings, sentence):
    with pytest.raises(ProvenanceError, match=".*".join(sentence.split(" = ")[:1])) as caught:
        check_settings("m.json", MANIFEST, settings)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(("field", "value"), [("policy", "fixed_h"), ("draw", 1), ("seed", 2)])
def test_a_file_of_another_measurement_is_named(field, value):
    with pytest.raises(ProvenanceError, match=f"m.json: {field} is"):
        check_identity("m.json", MANIFEST, MANIFEST | {field: value})
