"""The workload-aware scores by hand, and what the defaults make of a periodic load."""

import numpy as np
import pytest
from pydantic import ValidationError

from safesync.placement import Corridor
from safesync.policies import load_policy
from safesync.policies.base import Block
from safesync.policies.replay import decide_schedule

CORRIDOR = Corridor(128, 512, 0.0625, 8.0, 100.0)
WaDiloco, WaForecast = load_policy("wa_diloco"), load_policy("wa_forecast")


# islands: 0.5 * 0.4 + 0.5 * 0.25 = 0.325, and 0.5 + 0.5 = 1; mean 0.6625
# staleness: 0.25 * mean(0.5, 1) = 0.1875
# pressure: 0.5 * 0.1 + 0.75 * 0.2 + 0.25 * 0.4 = 0.3
PROGRESS, STALE, PRESSURE = 0.6625, 0.1875, 0.3


def test_score_by_hand(seen):
    assert WaDiloco().score(seen()) == pytest.approx(PROGRESS + STALE - PRESSURE)
    published = WaDiloco(WaDiloco.Parameters(staleness="published"))
    assert published.score(seen()) == pytest.approx(PROGRESS - STALE - PRESSURE)


@pytest.mark.parametrize(("direction", "sign"), [("urgency", 1), ("published", -1)])
def test_staler_learners_gain_urgency_unless_the_published_sign_is_asked_for(seen, direction, sign):
    policy = WaDiloco(WaDiloco.Parameters(staleness=direction))
    fresh, stale = (policy.score(seen(staleness_s=np.full(2, s))) for s in (8.0, 24.0))
    assert stale - fresh == pytest.approx(sign * 0.25 * 16 / 32)


def test_a_rising_loss_does_not_count_below_zero(seen):
    score = WaDiloco().score(seen(loss_drop=np.array([-5.0, 2.0])))
    assert score == pytest.approx(PROGRESS - 0.5 * 0.4 / 2 + STALE - PRESSURE)


@pytest.mark.parametrize(("threshold", "merge"), [(0.5, True), (0.6, False)])
def test_merge_above_the_threshold(seen, threshold, merge):
    decision = WaDiloco(WaDiloco.Parameters(threshold=threshold)).decide(seen())
    assert decision.merge is merge
    assert decision.score == pytest.approx(0.55)
    score = decision.score
    assert not WaDiloco(WaDiloco.Parameters(threshold=score)).decide(seen()).merge


def test_defaults_are_the_published_weights():
    p = WaDiloco.Parameters()
    weights = (p.loss_weight, p.tokens_weight, p.network_weight, p.serving_weight)
    assert weights == (0.5, 0.5, 0.5, 0.75)
    assert (p.checkpoint_weight, p.staleness_weight) == (0.25, 0.25)
    assert p.tokens_scale == 1e6


@pytest.mark.parametrize("policy", [WaDiloco, WaForecast])
@pytest.mark.parametrize("bad", [{"loss_scale": 0}, {"net_weight": 1}, {"staleness": "down"}])
def test_bad_parameters_are_refused(policy, bad):
    with pytest.raises(ValidationError, match=next(iter(bad))):
        policy.Parameters.model_validate(bad)


def forecasting(**parameters):
    policy = WaForecast(WaForecast.Parameters(**parameters))
    policy.begin(Block(CORRIDOR, islands=2, rng=np.random.default_rng(0)))
    return policy


def test_forecast_by_hand(seen):
    # rate: 2, then 2 + 0.3 * 2 = 2.6, then 2.6 - 0.3 * 1.6 = 2.12
    # overlap: 3 + 8 * 2.12 = 19.96 of 20
    score = forecasting().score(seen())
    assert score == pytest.approx(PROGRESS + STALE - PRESSURE - 0.75 * 19.96 / 20)
    wide = forecasting(overlap_scale=5.0).score(seen())
    assert wide == pytest.approx(PROGRESS + STALE - PRESSURE - 0.75)


def test_forecast_does_not_depend_on_when_it_is_asked(seen):
    counts = np.array([2, 4, 1, 0, 0, 9])
    often = forecasting(overlap_scale=500.0)  # nothing is clipped
    for seconds in (0, 1, 1, 3, 4):
        often.score(seen(counts_per_s=counts[:seconds]))
    whole = seen(counts_per_s=counts)
    assert often.score(whole) == forecasting(overlap_scale=500.0).score(whole)


def test_before_the_first_second_only_requests_in_flight_count(seen):
    score = forecasting().score(seen(counts_per_s=np.array([], dtype=int)))
    assert score == pytest.approx(PROGRESS + STALE - PRESSURE - 0.75 * 3 / 20)


@pytest.mark.parametrize("policy", [WaDiloco, WaForecast])
def test_defaults_use_the_middle_of_the_corridor(policy, corridor, simulated):
    facts = [decide_schedule(policy(), corridor, simulated(seed))[1] for seed in range(12)]
    middle = [fact["budget"] in (3, 4) for fact in facts]
    assert np.mean(middle) >= 0.9
    assert np.mean([fact["forced_share"] for fact in facts]) < 0.1
    assert not any("disguise" in warning for fact in facts for warning in fact["warnings"])


def test_the_published_threshold_and_scales_pin_the_budget(corridor, simulated):
    parameters = WaDiloco.Parameters(
        threshold=0, loss_scale=0.05, staleness_scale_s=1800, staleness="published"
    )
    facts = [
        decide_schedule(WaDiloco(parameters), corridor, simulated(seed))[1] for seed in range(6)
    ]
    assert all(fact["budget"] >= 5 and fact["warnings"] for fact in facts)


def test_schedules_are_pinned(corridor, simulated):
    def steps(policy):
        return decide_schedule(policy(), corridor, simulated(1))[0]["step"].tolist()

    assert steps(WaDiloco) == [228, 435, 724, 989]
    assert steps(WaForecast) == [192, 432, 752]
