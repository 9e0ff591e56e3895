from pathlib import Path

from safesync.config import load, read
from safesync.plan import done, measurements, sentence


def test_the_default_run_is_eight_measurements():
    # calibration: nosync, probe; judged: nosync, fixed_h_256, wa_diloco, three draws
    assert measurements(read("config/config.yaml")) == (8, 8)


def test_claims_share_the_draws_of_a_budget():
    policies = [{"id": f"fixed_{h}", "policy": "fixed_h", "params": {"h": h}} for h in (200, 256)]
    config = load(
        {
            "policies": policies,
            "claims": ["fixed_200", "fixed_256"],
            "seeds": {"calibration": [1], "judge": [2, 3]},
            "controls": {"draws": 5},
        }
    )
    # 2 captures of calibration; per judged seed nosync, 2 policies, 5 to 10 draws
    assert measurements(config) == (2 + 2 * 8, 2 + 2 * 13)


def test_repeats_are_counted():
    # calibration: nosync, probe; per judged seed 3 x nosync, 3 x fixed_h_256, 3 draws
    assert measurements(read("config/validation.yaml")) == (2 + 3 * 9, 2 + 3 * 9)


def test_what_is_there_is_counted(tmp_path):
    config = read("config/smoke.yaml")
    folder = tmp_path / "smoke/manifest/regime=bursty/seed=23/policy=nosync/draw=0"
    folder.mkdir(parents=True)
    assert done(config, tmp_path) == 0
    Path(folder / "manifest.json").write_text("{}")
    assert done(config, tmp_path) == 1
    assert "run 'smoke': 4 measurements of 30 s" in sentence(config, tmp_path)
    assert "Results of 1 are there" in sentence(config, tmp_path)
