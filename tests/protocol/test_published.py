"""The published study's numbers, each checked against a count from the rows themselves."""

import gc
import json
from itertools import product
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
import pytest

from safesync import published as page
from safesync.protocol.document import VerdictDocument
from safesync.protocol.published import (
    RANDOM,
    Finding,
    findings,
    mean_rate,
    merge_share_fit,
    paired,
    pooled_sd,
    rates,
    read_figures,
    readings,
    score_rows,
)

# steady, violation rate = violations / requests, as the rows hold them, seed by seed
STEADY_WA = [392 / 6120, 416 / 6144, 384 / 6192, 360 / 5952, 416 / 6072]
STEADY_RANDOM = [336 / 6112, 408 / 6064, 400 / 6112, 424 / 5816, 360 / 6152]


@pytest.fixture(scope="module", autouse=True)
def few_objects():
    """statsmodels collects garbage at every Holm: spare it all that the imports left."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def figures():
    return read_figures(page.FIGURES)


@pytest.fixture(scope="module")
def found(figures):
    return findings(figures)


@pytest.fixture(scope="module")
def read(figures):
    return {(reading.regime, reading.policy): reading for reading in readings(figures)}


def flips(differences, two_sided=False):
    """The sign patterns, of all, whose sum is as extreme: counted one by one."""
    sums = [sum(s * d for s, d in zip(signs, differences, strict=True))
            for signs in product((1, -1), repeat=len(differences))]  # fmt: skip
    observed = sum(differences)
    if two_sided:
        return sum(abs(s) >= abs(observed) - 1e-12 for s in sums), len(sums)
    return sum(s <= observed + 1e-12 for s in sums), len(sums)


def value(found, what, unit, quoted=None):
    return next(
        f.value for f in found if (f.what, f.unit) == (what, unit) and quoted in (None, f.quoted)
    )


def test_the_steady_rates_are_violations_over_requests(figures):
    assert rates(figures, "steady", "wa_diloco").tolist() == pytest.approx(STEADY_WA, abs=1e-15)
    assert rates(figures, "steady", RANDOM).tolist() == pytest.approx(STEADY_RANDOM, abs=1e-15)
    assert mean_rate(figures, "steady", "wa_diloco") == pytest.approx(np.mean(STEADY_WA))


def test_the_steady_comparison_is_18_of_32_and_30_of_32(figures, found):
    differences = [wa - random for wa, random in zip(STEADY_WA, STEADY_RANDOM, strict=True)]
    assert paired(figures, "steady", "wa_diloco", RANDOM) == pytest.approx(differences)
    assert flips(differences) == (18, 32)
    assert flips(differences, two_sided=True) == (30, 32)
    name = "steady: wa_diloco minus random"
    assert value(found, name, "points") == pytest.approx(100 * np.mean(differences))
    assert value(found, name, "p", "0.5625") == 18 / 32
    assert value(found, name, "p", "0.9375") == 30 / 32


def test_the_bursty_comparisons_are_11_and_2_of_32(found):
    online = [0.0838650, 0.0456580, 0.0520548, 0.0605787, 0.0538600]
    random = [0.055735, 0.064418, 0.066255, 0.058219, 0.06822]
    wa = [0.094515, 0.043398, 0.066665, 0.064229, 0.07692]
    for other, name, count in ((random, "random", 11), (wa, "wa_diloco", 2)):
        differences = [a - b for a, b in zip(online, other, strict=True)]
        assert flips(differences) == (count, 32)
        said = f"bursty: online_calibrated minus {name}"
        assert value(found, said, "p") == count / 32
        assert value(found, said, "points") == pytest.approx(100 * np.mean(differences), abs=1e-4)


def test_noise_is_the_pooled_spread_within_policies(figures):
    runs = figures[(figures["regime"] == "pressure") & (figures["basis"] == "run")]
    squares = 0.0
    for _, of in runs.groupby("policy"):
        rate = of["violation_rate"].to_numpy()
        squares += ((rate - rate.mean()) ** 2).sum()
    assert pooled_sd(figures, "pressure") == pytest.approx((squares / (6 * 4)) ** 0.5)
    assert 100 * pooled_sd(figures, "pressure") == pytest.approx(1.1911, abs=5e-5)


def test_the_rate_is_the_share_served_during_merges(figures):
    fit, slope, intercept = merge_share_fit(figures, "steady")
    assert (round(fit, 4), round(slope, 4), round(intercept, 5)) == (0.9917, 0.9915, -0.00108)


def test_every_quoted_number_that_the_figures_carry_comes_out(found):
    carried = [f for f in found if f.value is not None and f.quoted is not None]
    assert len(carried) == 22
    assert {f.status for f in carried} == {"recomputed", "recomputed, rounded twice"}
    twice = {f.quoted for f in carried if f.status == "recomputed, rounded twice"}
    assert twice == {"11.04", "13.73", "11.93", "6.92", "4.45"}
    missing = {f.quoted for f in found if f.status == "quoted, not recomputable"}
    assert missing == {"0.966", "6.54", "5.09", "0.021", "graceful", "60"}


@pytest.mark.parametrize(
    ("quoted", "computed", "status"),
    [
        ("6.38", 6.3849, "recomputed"),
        ("6.38", 6.385, "differs"),
        ("11.04", 11.0347, "recomputed, rounded twice"),
        ("11.04", 11.0344, "differs"),
        ("0.344", 11 / 32, "recomputed"),
        ("-0.337", -0.33661, "recomputed"),
        ("-0.337", 0.33661, "differs"),
        (None, 1.0, "not in the study"),
        ("6.54", None, "quoted, not recomputable"),
    ],
)
def test_a_number_agrees_at_the_digits_that_were_printed(quoted, computed, status):
    assert Finding("x", "%", quoted, computed, "").status == status


def test_a_changed_figure_is_told(figures):
    wrong = figures.copy()
    row = (wrong["policy"] == "wa_diloco") & (wrong["regime"] == "steady") & (wrong["seed"] == 23)
    wrong.loc[row, "violation_rate"] += 0.01
    told = {(f.what, f.unit) for f in findings(wrong) if f.status == "differs"}
    assert ("steady: violation rate of wa_diloco", "%") in told
    assert ("steady: wa_diloco minus random", "points") in told
    assert ("steady: wa_diloco minus random", "p") in told


def test_what_the_protocol_says(read):
    said = {
        key: (reading.result["verdict"], reading.lenient["verdict"])
        for key, reading in read.items()
    }
    assert said == {
        ("steady", "wa_diloco"): ("TIED", "TIED"),
        ("pressure", "wa_diloco"): ("INCONCLUSIVE", "INCONCLUSIVE"),
        ("bursty", "wa_diloco"): ("REFUSED", "INCONCLUSIVE"),
        ("bursty", "offline_calibrated"): ("REFUSED", "INCONCLUSIVE"),
        ("bursty", "online_calibrated"): ("REFUSED", "INCONCLUSIVE"),
    }
    assert "leaves the corridor" in read["bursty", "online_calibrated"].result["sentence"]


def test_the_largest_gain_fails_for_want_of_blocks_only(read):
    result = read["bursty", "offline_calibrated"].lenient
    passed = {gate["name"]: gate["passed"] for gate in result["gates"]}
    assert (passed["resolution"], passed["envelope"], passed["gain"]) == (False, False, True)
    assert result["claim"]["p_claim"] == 1 / 32
    assert result["claim"]["p_holm"] == 3 / 32
    assert result["settle"]["blocks"] == 6  # 2^-6 is below alpha / 3, 2^-5 is not


def test_what_the_figures_lack_is_never_passed(read):
    for reading in read.values():
        gates = {gate["name"]: gate["passed"] for gate in reading.lenient["gates"]}
        for name in (
            "measurement valid",
            "fingerprint",
            "effect-size transfer",
            "no-sync load match",
            "budget match",
            "causality",
            "training parity",
        ):
            assert gates[name] is None, name


def test_a_reconstructed_rate_takes_the_requests_of_its_seed(figures):
    rows = score_rows(figures, "bursty", corridor=True).set_index(["policy", "seed"])
    assert rows.loc[("wa_diloco", 29), "requests"] == 4468
    assert not rows.loc[("matched_random", 29), "feasible"]
    assert rows.loc[("online_calibrated", 29), "feasible"]
    assert rows["excess_rate"].isna().all()


def test_policies_without_common_seeds_are_not_paired(figures):
    with pytest.raises(ValueError, match="bursty: fixed_h_256 and random_matched have no runs"):
        paired(figures, "bursty", "fixed_h_256", RANDOM)


def test_a_wrong_file_is_one_sentence(tmp_path, capsys):
    lines = Path(page.FIGURES).read_text().splitlines()
    short = tmp_path / "short.csv"
    short.write_text("\n".join(line.rpartition(",")[0] for line in lines))
    with pytest.raises(ValueError, match=r"short\.csv: expected the columns stage, regime"):
        read_figures(short)
    twice = tmp_path / "twice.csv"
    twice.write_text("\n".join([*lines, lines[-1]]))
    with pytest.raises(ValueError, match=r"1 rows stand twice, the first: stage 12"):
        read_figures(twice)
    with pytest.raises(SystemExit, match="No such file"):
        page.main([str(tmp_path / "none.csv"), "--json", str(tmp_path / "out.json")])
    assert not (tmp_path / "out.json").exists()


def test_the_page_and_the_json_hold_the_same(tmp_path, capsys, found, read):
    page.main(["--json", str(tmp_path / "published.json")])
    printed = capsys.readouterr().out
    document = json.loads((tmp_path / "published.json").read_text())
    assert len(document["findings"]) == len(found)
    for finding in document["findings"]:
        assert f"| {finding['what']} " in printed
    schema = VerdictDocument.model_json_schema()
    part = {"$ref": "#/$defs/PolicyResult", "$defs": schema["$defs"]}
    for reading in document["readings"]:
        jsonschema.validate(reading["result"], part)
        assert f"**{reading['policy']}, {reading['regime']}: {reading['result']['verdict']}.**" in (
            printed
        )
    assert "| steady: wa_diloco minus random" in printed
    assert "| 0.5625   | 0.5625" in printed


def test_no_row_is_left_out(figures):
    assert len(figures) == 100
    counts = figures.groupby(["regime", "basis"]).size().to_dict()
    assert counts == {
        ("calibration", "run"): 8,
        ("pressure", "run"): 30,
        ("steady", "run"): 30,
        ("bursty", "run"): 5,
        ("bursty", "mean"): 6,
        ("bursty", "sd"): 6,
        ("bursty", "reconstructed"): 15,
    }
    assert pd.isna(figures[figures["basis"] == "mean"]["seed"]).all()
