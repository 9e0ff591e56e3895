"""Names of replays: what is a policy, and whose gaps a matched spacing has."""

import numpy as np
import pandas as pd
import pytest
from protocol.planted import row

from safesync.protocol.blocks import (
    collect,
    is_control,
    is_policy,
    judged_policy,
    replayed_policy,
    told_apart,
)


@pytest.mark.parametrize(
    ("name", "control", "policy"),
    [
        ("wa", False, True),
        ("nosync", False, False),
        ("probe", False, False),
        ("matched_random", True, False),
        ("matched_random_4", True, False),
        ("matched_spacing", True, False),
        ("matched_spacing_wa", True, False),
    ],
)
def test_what_is_neither_capture_nor_control_is_a_policy(name, control, policy):
    assert (is_control(name), is_policy(name)) == (control, policy)


def test_the_name_in_a_path_gives_that_of_the_row_and_of_the_page():
    def row_of(path_policy, **facts):
        return replayed_policy(facts, path_policy)

    assert row_of("matched_random_4", policy="matched_random") == ("matched_random", None)
    spacing = row_of("matched_spacing_wa", policy="matched_spacing", spacing_of="wa")
    assert spacing == ("matched_spacing", "wa")
    # the facts of a policy name its module, and a file of one's own may have any name
    assert row_of("calm", policy="fixed_h") == ("calm", None)
    assert row_of("mine", policy="matched_spacing") == ("mine", None)
    names = ["matched_random_4", "matched_spacing_wa", "wa", "nosync"]
    assert list(map(judged_policy, names)) == ["matched_random", *names[1:]]


def test_rows_of_two_policies_spacing_are_told_apart():
    rows = [row("wa", 1, 0.1), row("matched_random", 1, 0.2)]
    rows += [row("matched_spacing", 1, 0.3, control_of=policy) for policy in ("wa", "even")]
    scores = pd.DataFrame(rows, index=[5, 5, 7, 8])
    found = told_apart(scores)
    assert found["policy"].tolist() == [
        "wa",
        "matched_random",
        "matched_spacing_wa",
        "matched_spacing_even",
    ]
    assert found.drop(columns="policy").equals(scores.drop(columns="policy"))
    without = scores.iloc[:2].assign(control_of=np.nan)
    assert told_apart(without)["policy"].tolist() == ["wa", "matched_random"]


def test_a_block_has_the_spacing_of_its_own_policy_alone():
    rows = [row("nosync", 1, 0.0, budget=0), row("wa", 1, 0.1), row("even", 1, 0.1)]
    rows += [
        row("matched_spacing", 1, rate, control_of=policy, draw=draw)
        for policy, rate in (("wa", 0.2), ("even", 0.3))
        for draw in range(2)
    ]
    scores = pd.DataFrame(rows)
    for policy, rate in (("wa", 0.2), ("even", 0.3)):
        [block] = collect(scores, "vllm", "bursty", policy)
        assert block.spacing["violation_rate"].tolist() == [rate, rate]
        assert len(block.replays) == 1 + 1 + 2
