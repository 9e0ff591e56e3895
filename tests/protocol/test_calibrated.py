"""model.json: what is refused, and which load a model has seen."""

import json

import pandas as pd
import pytest
from protocol.emulator_model import SETTINGS, TRUTH, arrivals, calibrated, merges, replay

from safesync.emulator import Probe, calibrate
from safesync.protocol.calibrated import (
    ModelError,
    Uncalibrated,
    cache_limits,
    load_of,
    mean_rate,
    one_sidecar,
    preemptions,
    read_calibrated,
)
from safesync.tables import write_document


@pytest.fixture(scope="module")
def model():
    return calibrated()


@pytest.fixture
def path(model, tmp_path):
    write_document(tmp_path / "model.json", model.model_dump(mode="json"))
    return str(tmp_path / "model.json")


def refused(path, regime="bursty", **changes):
    with pytest.raises(ModelError) as error:
        read_calibrated(path, regime=regime, settings=SETTINGS | changes)
    return str(error.value).removeprefix(path)


def test_a_model_reads_back_as_it_was_written(path, model):
    assert read_calibrated(path, regime="bursty", settings=SETTINGS) == model


def test_another_sidecar_merge_model_or_regime_is_refused(path):
    other = {"max_num_seqs": 32, "max_model_len": 256}
    assert refused(path, sidecar=other) == (
        ": calibrated with sidecar.max_num_seqs = 16, the config says 32; calibrate again"
    )
    assert "merge.ranks = 2, the config says 4" in refused(path, merge={"merge_s": 4.0, "ranks": 4})
    assert ": calibrated with model = 'tiny', the config says 'big'" in refused(path, model="big")
    assert refused(path, regime="steady") == (
        ": calibrated for regime 'bursty', expected 'steady'; calibrate again"
    )
    unknown = SETTINGS["sidecar"] | {"dtype": "float16"}
    assert "sidecar.dtype = None, the config says 'float16'" in refused(path, sidecar=unknown)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (None, ": a model without a version, expected version 2; calibrate again"),
        (1, ": a model of version 1, expected version 2; calibrate again"),
        (3, ": a model of version 3, expected version 2; calibrate again"),
    ],
)
def test_another_version_or_none_is_refused(path, model, version, said):
    document = model.model_dump(mode="json") | {"version": version}
    if version is None:
        del document["version"]
    write_document(path, document)
    assert refused(path) == said
    reason = Uncalibrated(regime="bursty", why="too few requests.").model_dump(mode="json")
    write_document(path, {**reason, "version": 1})
    assert refused(path) == ": a model of version 1, expected version 2; calibrate again"


def test_a_wrong_field_is_named(path, model):
    document = model.model_dump(mode="json")
    document["model"]["step"]["base_s"] = -1
    write_document(path, document)
    assert ": field 'model.step.base_s': " in refused(path)


def test_a_document_without_a_model_says_why(tmp_path):
    path = str(tmp_path / "model.json")
    said = Uncalibrated(regime="bursty", why="too few requests.")
    write_document(path, said.model_dump(mode="json"))
    assert json.loads((tmp_path / "model.json").read_text())["calibrated"] is False
    assert read_calibrated(path, regime="bursty", settings=SETTINGS) == said
    assert "calibrated for regime 'bursty'" in refused(path, regime="steady")


def test_the_load_of_known_traces():
    rows = pd.DataFrame(
        {
            "arrival_s": [0.0, 1.0, 1.9, 2.0, 9.0],
            "prompt_tokens": [10, 20, 30, 40, None],
            "output_tokens": [1, 2, 3, 4, 0],
        }
    )
    load = load_of([rows, rows.iloc[:1]], 2.0)
    assert load.peak_rps == 3 / 2  # 0 to 1.9; the request at 2.0 is outside [0, 2)
    assert (load.prompt_tokens, load.output_tokens) == ((10, 40), (1, 4))


def test_only_more_than_a_quarter_beyond_is_outside():
    load = load_of([arrivals(rate_rps=3.0)], 4.0)
    assert load.outside(arrivals(seed=5, rate_rps=3.0)) == []
    denser = arrivals(rate_rps=12.0)
    assert len(load.outside(denser)) == 1
    assert "arrivals peak at" in load.outside(denser)[0]
    longer = arrivals().assign(prompt_tokens=81)
    assert load.outside(arrivals().assign(prompt_tokens=80)) == []
    assert load.outside(longer) == [
        "prompt tokens reach from 81 to 81, in the calibrated load from 16 to 64"
    ]


def test_mean_rates_weigh_captures_by_their_length():
    one = pd.DataFrame({"t_s": [0.0, 5.0, 10.0], "network_bytes": [100, 500, 1100]})
    two = pd.DataFrame({"t_s": [0.0, 30.0], "network_bytes": [0, 0]})
    assert mean_rate([one], "network_bytes") == 100.0
    assert mean_rate([one, two], "network_bytes") == 25.0


def test_preemptions_are_what_the_counters_rose_by():
    one = pd.DataFrame({"preemptions_total": [2.0, float("nan"), 2.0, 5.0]})
    untold = pd.DataFrame({"preemptions_total": [float("nan")] * 2})
    assert preemptions([one, untold, one]) == 6
    assert preemptions([untold]) == preemptions([]) == 0


def test_one_block_of_the_cache_is_the_servers_own_and_what_is_untold_is_left_open():
    assert cache_limits({"blocks": 728, "block_size": 128}) == {"kv_blocks": 727, "block_size": 128}
    assert cache_limits({"blocks": None, "block_size": 16}) == {"block_size": 16}
    assert cache_limits({"blocks": None, "block_size": None}) == {}


def test_captures_of_several_sidecars_are_refused():
    assert one_sidecar(["a", "a"]) == "a"
    with pytest.raises(ValueError) as error:
        one_sidecar(["b", "a", "b"])
    assert str(error.value) == (
        "the calibration captures carry 2 fingerprints of machine and software (a, b); expected "
        "one, for a model is that of one sidecar."
    )


@pytest.mark.parametrize(
    ("requests", "windows", "said"),
    [
        (
            29,
            (6.0, 20.0, 33.0, 48.0),
            "the nosync captures hold 29 successful requests, too few to fit a step-time model; "
            "expected at least 30.",
        ),
        (
            180,
            (),
            "a probe capture holds no merge; expected probes with at least one merge each to fit "
            "contention.",
        ),
        (
            180,
            (70.0,),
            "the probes' merges met 0 engine steps that can be timed, too few to fit contention; "
            "expected at least 20.",
        ),
    ],
)
def test_captures_that_show_too_little_give_a_sentence_in_place_of_a_model(
    tmp_path, requests, windows, said
):
    rows = arrivals()
    probe = Probe(replay(rows), merges(*windows))
    with pytest.raises(ValueError) as error:
        calibrate([replay(rows).head(requests)], [probe], TRUTH.limits)
    path = tmp_path / "model.json"
    why = Uncalibrated(regime="bursty", why=str(error.value))
    write_document(path, why.model_dump(mode="json"))
    assert read_calibrated(str(path), regime="bursty", settings=SETTINGS).why == said
