import copy
from pathlib import Path

import pytest
import yaml

from safesync import config_files
from safesync.config import Config, ConfigError, load, read

CONFIGS = sorted(Path("config").glob("*.yaml"))


def broken(**values) -> str:
    with pytest.raises(ConfigError) as caught:
        load(values, "mine.yaml")
    return str(caught.value)


@pytest.mark.parametrize("name", config_files.PRESETS)
def test_written_configs_have_not_drifted(name):
    assert Path(f"config/{name}.yaml").read_text() == config_files.config_yaml(name), (
        "run `python -m safesync.config_files`"
    )


def test_the_readme_has_not_drifted():
    assert Path("config/README.md").read_text() == config_files.config_readme()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_is_complete_and_reads_back_as_it_was_meant(path):
    found = read(path)
    _, values = config_files.PRESETS[path.stem]
    assert found == load(copy.deepcopy(values))
    assert set(yaml.safe_load(path.read_text())) == set(Config.model_fields)


def test_default_is_the_models_default():
    assert read("config/config.yaml") == Config()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"sidecar": {"max_modle_len": 3}},
            "mine.yaml: sidecar.max_modle_len: unknown key; did you mean 'max_model_len'?",
        ),
        (
            {"horizon": 3},
            "mine.yaml: horizon: unknown key; did you mean 'horizon_s'?",
        ),
        (
            {"regimes": {"b": {"arrivals": {"family": "periodic", "quiet": 1}}}},
            "mine.yaml: regimes.b.arrivals.periodic.quiet: unknown key; did you mean 'quiet_rps'?",
        ),
        (
            {"policies": [{"id": "x", "policy": "fixed_h", "params": {"hh": 2}}], "claims": []},
            "mine.yaml: policies.0: policy 'fixed_h': params: hh: unknown key; did you mean 'h'?",
        ),
        (
            {"horizon_s": 10},
            "mine.yaml: horizon_s 10 holds no merge: the first ends at h_min x step_s + merge_s = "
            "128 x 0.0625 + 8 = 16 s at the earliest",
        ),
        ({"claims": ["wa_dilco"]}, "claims: 'wa_dilco' is no policy id; did you mean 'wa_diloco'?"),
        ({"horizon_s": -1}, "mine.yaml: horizon_s: Input should be greater than 0, got -1"),
        ({"seeds": {"calibration": [1], "judge": [1]}}, "seed 1 stands in 'calibration' and in"),
        ({"seeds": {"judge": []}}, "'judge' is empty"),
        ({"seeds": {"calibration": [], "judge": [1]}}, "slo.threshold_s is null"),
        ({"controls": {"draws": 5, "pool": 4}}, "draws 5 exceeds pool 4; raise pool"),
        ({"sidecar": {"max_model_len": 50}}, "reach 96 tokens, more than sidecar.max_model_len 50"),
        ({"run": "../x"}, "mine.yaml: run: String should match pattern"),
        ({"policies": [{"id": "nosync", "policy": "fixed_h"}]}, "'nosync' is reserved"),
        ({"policies": [{"id": "a", "policy": "fixed_h", "file": "a.py"}]}, "either 'policy' or"),
        ({"policies": [{"id": "a", "file": "absent.py"}]}, "policy file absent.py: no such file"),
        (
            {
                "policies": [{"id": "a", "policy": "fixed_h", "measure": False}],
                "claims": ["a"],
            },
            "claims: 'a' has measure: false; a claim is measured",
        ),
        (
            {
                "policies": [
                    {"id": "a", "policy": "wa_offline", "params": {"budget_from": "wa_forcast"}},
                    {"id": "wa_forecast", "policy": "wa_forecast"},
                ],
                "claims": [],
            },
            "'a' takes its budget from 'wa_forcast', which is no other policy id; did you mean "
            "'wa_forecast'?",
        ),
        ({"corridor": {"h_min": 600}}, "h_max"),
        ({"merge": {"merge_s": 8.01}}, "step_s"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_bad_input_is_refused_in_one_sentence(values, sentence):
    said = broken(**values)
    assert sentence in said
    assert len(said.splitlines()) == 1


def test_every_fault_gets_its_sentence():
    assert len(broken(horizen=1, rum="x").splitlines()) == 2
