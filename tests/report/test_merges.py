"""Merge costs against sums done by hand."""

from dataclasses import replace

import pandas as pd
import pytest

from safesync.report.merges import MergePlan, cost, merge_costs
from safesync.report.replay import Replay

PLAN = MergePlan(merge_s=8.0, tolerance_s=0.25, parameters=1000, ranks=4)


def merges(*rows):
    names = ("start_s", "end_s", "reduce_s", "optimizer_s", "checkpoint_s", "rounds")
    found = pd.DataFrame(rows, columns=[*names, "models"])
    # a round adds a flag of 4 bytes per rank to the parameters that it reduces
    found["reduced_bytes"] = (4 * 1000 * found["models"] + 16 * found["rounds"]).astype(int)
    found["written_bytes"] = 8_000 * found["models"]
    return found.drop(columns="models")


ONE = (10.0, 18.0, 4.0, 1.0, 2.0, 5, 2)
OTHER = (30.0, 42.0, 4.0, 2.0, 3.0, 15, 3)


def replay(policy, rows, manifest=None):
    return Replay("vllm", "r", 1, "judge", policy, 0, 1, pd.DataFrame(), rows, None, None,
                  manifest or {})  # fmt: skip


def test_cost_by_hand():
    found = cost(merges(ONE, OTHER), PLAN)
    expected = {
        "merges": 2,
        "window_s": 10.0,
        "rounds": 10.0,
        "reduced_bytes": 10_160.0,
        "written_bytes": 20_000.0,
        "reduce_share": 0.4,
        "optimizer_share": 0.15,
        "checkpoint_share": 0.25,
        "other_share": 0.2,
        "reduce_gbps": 20_320e-9 / 8,
        "checkpoint_gbps": 40_000e-9 / 5,
        "models": 2.5,
        "whole_model_s": 4.0,
    }
    assert found == pytest.approx(expected)


def test_flags_are_no_part_of_the_model():
    found = cost(merges(ONE), replace(PLAN, ranks=0))
    assert found["models"] == pytest.approx(2.02)


def test_a_merge_that_reduced_nothing_has_no_bandwidth():
    found = cost(merges((0.0, 8.0, 0.0, 0.0, 0.0, 0, 0)), PLAN)
    assert found["models"] == 0
    assert pd.isna([found["reduce_gbps"], found["checkpoint_gbps"], found["whole_model_s"]]).all()


def test_throttled_merges_stand_apart():
    slow = {"config": {"merge": {"style": "throttled"}}}
    found = [replay("wa", merges(ONE)), replay("slow", merges(OTHER), slow)]
    rows, every = merge_costs([*found, replay("nosync", merges())], ["wa", "slow"], PLAN)
    assert [row["group"] for row in rows] == ["wa", "slow, throttled"]
    assert (every["group"], every["merges"], every["window_s"]) == ("all blocking merges", 1, 8.0)
    assert merge_costs([found[1]], ["slow"], PLAN)[1] is None
    assert merge_costs([], [], PLAN) == ([], None)
