import copy
from pathlib import Path

import pytest
import yaml

from safesync import config_files
from safesync.config import Config, ConfigError, PolicyEntry, load, read

CONFIGS = sorted(Path("config").glob("*.yaml"))


def broken(**values) -> str:
    with pytest.raises(ConfigError) as caught:
        load(values, "mine.yaml")
    return str(caught.value)


def trace(**window) -> dict:
    return {"family": "trace", "path": "mine.csv"} | window


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
        (
            {"controls": {"spacing": 5, "pool": 4}},
            "mine.yaml: controls: spacing 5 exceeds pool 4; raise pool",
        ),
        ({"controls": {"spacing": -1}}, "greater than or equal to 0, got -1"),
        (
            {"controls": {"repeats": {"wa_forecast": 3}}},
            "controls.repeats: 'wa_forecast' is not measured",
        ),
        ({"controls": {"repeats": {"nosync": 0}}}, "greater than or equal to 1, got 0"),
        ({"emulator": {"seeds": [23]}}, "emulator.seeds: seed 23 stands in seeds.judge too"),
        ({"emulator": {"seeds": [5, 5]}}, "emulator.seeds: seed 5 stands twice"),
        ({"emulator": {"seeds": [-1]}}, "emulator.seeds: seed -1 is not from 0 to 2^31 - 1"),
        ({"parity": {"seeds": [1, 1]}}, "parity.seeds: seed 1 stands twice; none may repeat"),
        ({"parity": {"seeds": [-1]}}, "parity.seeds: seed -1 is not from 0 to 2^31 - 1"),
        (
            {"regimes": {"mine": {"arrivals": trace(window_s=99)}}},
            "mine.yaml: regimes.mine.arrivals: window_s 99 is shorter than horizon_s 100; widen "
            "the window or shorten horizon_s",
        ),
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
        ({"claims": ["wa_diloco", "wa_diloco"]}, "claims: 'wa_diloco' stands twice"),
        (
            {
                "policies": [{"id": "slow", "policy": "wa_diloco", "style": "throttled"}],
                "claims": ["slow"],
            },
            "claims: 'slow' has another style than blocking",
        ),
        (
            {"policies": [{"id": "oracle", "policy": "wa_offline"}], "claims": ["oracle"]},
            "claims: 'oracle' is not deployable",
        ),
        (
            {
                "policies": [
                    {"id": "a", "policy": "wa_offline", "params": {"budget_from": "b"}},
                    {"id": "b", "policy": "wa_offline", "params": {"budget_from": "a"}},
                ],
                "claims": [],
            },
            "'a' takes its budget from 'b', which takes its own from another",
        ),
        ({"policies": [{"id": "a", "policy": "nosync"}], "claims": []}, "never merges"),
        (
            {"policies": [{"id": "a", "policy": "fixed_h", "params": {"h": 600}}], "claims": []},
            "policies: 'a' can never run: fixed_h",
        ),
        ({"regimes": {"gr\u00f6\u00dfe": {}}}, "is no name; expected a-z, 0-9 and _"),
        ({"seeds": {"judge": [10**30]}}, "is not from 0 to 2^31 - 1"),
        ({"horizon_s": 1e9, "corridor": {"step_s": 1e-9}}, "steps, more than the 5000000"),
        (
            {"sidecar": {"command": ["serve", "{prt}"]}},
            "command: '{prt}' holds another placeholder",
        ),
        ({"sidecar": {"command": []}}, "mine.yaml: sidecar.command: List should have at least 1"),
        ({"sidecar": {"url": "localhost:8000"}}, "mine.yaml: sidecar.url: String should match"),
        ({"sidecar": {"url": "ftp://host"}}, "mine.yaml: sidecar.url: String should match"),
        ({"sidecar": {"prompt_ids": [40000, 1000]}}, "must rise from 0 or more over at least 256"),
        ({"sidecar": {"warm_up": {"min_rounds": 9}}}, "min_rounds 9 exceeds max_rounds 8"),
        ({"cores": {"client": []}}, "mine.yaml: cores.client: List should have at least 1"),
        ({"slo": {"threshold_s": float("inf")}}, "slo.threshold_s: Input should be a finite"),
        ({"model": {"name": "logs"}}, "name 'logs' is a folder of the pipeline's"),
        ({"corridor": {"h_min": 600}}, "mine.yaml: corridor: h_min 600 exceeds h_max 512"),
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


@pytest.mark.parametrize("text", ["a: [1", "\tb: 1", "- 1", "word", "1: 2", ""])
def test_a_file_that_holds_no_config_is_named(tmp_path, text):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.yaml: (not valid YAML|expected keys)") as caught:
        read(tmp_path / "mine.yaml")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "window",
    [
        {"window_s": 100},
        {"window_s": None},
        # of twice the rate that is asked for, 50 s would last 100 s
        {"window_s": 50, "scaling": "stretch", "target_rps": 1},
    ],
)
def test_a_window_that_may_hold_the_horizon_is_accepted(window):
    config = load({"horizon_s": 100, "regimes": {"mine": {"arrivals": trace(**window)}}})
    assert config.regimes["mine"].arrivals.window_s == window["window_s"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"policy": "fixed_h", "params": {"h": 256}}, "fixed_h, h 256: merge when the gap is h."),
        (
            {"policy": "fixed_h", "style": "throttled"},
            "fixed_h, throttled merges: merge when the gap is h.",
        ),
        ({"id": "fixed_h", "policy": "fixed_h"}, "merge when the gap is h."),
        ({"file": "calm.py"}, "calm.py."),
    ],
)
def test_a_policy_is_described_in_a_sentence(entry, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("calm.py").write_text(
        "from safesync.policies import load_policy\n"
        "class Calm(load_policy('fixed_h')):\n    pass\n"
        "POLICY = Calm\n"
    )
    assert PolicyEntry(**{"id": "a"} | entry).described() == said
