"""The fairness guard: no merge starts later than the bound, and it says when it decided."""

import numpy as np
import pytest

from safesync.placement import Corridor
from safesync.policies import load_policy
from safesync.policies.replay import decide_schedule

GUARDED = ["wa_diloco", "wa_forecast", "wa_horizon", "wa_mmpp"]


def built(name, **parameters):
    policy = load_policy(name)
    return policy(policy.Parameters(**parameters))


@pytest.mark.parametrize(("bound_s", "gap"), [(20.0, 320), (20.05, 320), (8.0, 128), (40.0, 512)])
def test_a_policy_that_never_wants_to_is_made_to_at_the_bound(corridor, flat, bound_s, gap):
    rows, facts = decide_schedule(
        built("wa_diloco", threshold=9.0, max_staleness_s=bound_s), corridor, flat()
    )
    assert set(np.diff(rows["step"], prepend=0)) == {gap}
    assert set(rows["reason"]) == {"fairness" if gap < 512 else "forced"}
    said = any("were made by the fairness guard" in warning for warning in facts["warnings"])
    assert said == (gap < 512)
    assert facts["forced_share"] == (gap == 512)


def test_a_merge_of_its_own_is_not_the_guards(corridor, flat):
    rows, _ = decide_schedule(
        built("wa_diloco", threshold=-9.0, max_staleness_s=8.0), corridor, flat()
    )
    assert set(rows["reason"]) == {"policy"}


@pytest.mark.parametrize("name", GUARDED)
def test_no_learner_is_staler_than_the_bound(name, corridor, simulated):
    gaps = {}
    for bound_s in (None, 14.0):
        drawn = [
            decide_schedule(built(name, max_staleness_s=bound_s), corridor, simulated(seed))[0]
            for seed in range(4)
        ]
        gaps[bound_s] = np.concatenate([np.diff(rows["step"], prepend=0) for rows in drawn])
    assert gaps[None].max() > 14 * 16
    assert gaps[14.0].max() == 14 * 16
    assert any((rows["reason"] == "fairness").any() for rows in drawn)


def test_overlapped_merges_count_staleness_from_the_end_of_the_merge(flat):
    corridor = Corridor(128, 512, 0.0625, 8.0, 100.0, blocking=False)
    rows, _ = decide_schedule(
        built("wa_diloco", threshold=9.0, max_staleness_s=10.0), corridor, flat()
    )
    # the first merge 10 s after t0; every further one 10 s after the end of the last
    assert np.diff(rows["start_s"], prepend=0).tolist() == [10.0, 18.0, 18.0, 18.0, 18.0]


@pytest.mark.parametrize("name", GUARDED)
def test_a_bound_that_h_min_breaks_is_refused(name, corridor, flat):
    with pytest.raises(ValueError, match=rf"{name}: max_staleness_s = 7 s can't be kept; h_min"):
        decide_schedule(built(name, max_staleness_s=7.0), corridor, flat())
