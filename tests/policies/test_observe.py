"""What a policy sees: hand-made captures, strictness at "now", and missing signals."""

import numpy as np
import pandas as pd
import pytest

from safesync.placement import Corridor
from safesync.policies.observe import observe_block

SECOND = Corridor(h_min=1, h_max=20, step_s=1.0, merge_s=2.0, horizon_s=60.0)
REFERENCES = {
    "network_reference_bytes_per_s": 100.0,
    "disk_reference_bytes_per_s": 50.0,
    "serving_reference": 4.0,
}


def frames():
    """Twelve seconds at 2 Hz, one request every second from 0.5 s on, two islands."""
    t_s = np.arange(0.0, 12.0, 0.5)
    requests = pd.DataFrame({"arrival_s": np.arange(0.5, 10), "done_s": np.arange(0.5, 10) + 1.5})
    telemetry = pd.DataFrame(
        {
            "t_s": t_s,
            "running": np.where(t_s < 6, 1.0, 3.0),
            "waiting": np.where(t_s < 6, 0.0, 9.0),
            "network_bytes": np.where(t_s < 6, 0, (t_s - 6) * 40).astype(np.int64),
            "disk_written_bytes": np.full(t_s.size, 7, dtype=np.int64),
        }
    )
    step = np.arange(1, 13)
    learners = pd.DataFrame(
        {
            "island": np.repeat([0, 1], 12).astype(np.int32),
            "step": np.tile(step, 2),
            "loss": np.concatenate([5 - 0.25 * step, np.full(12, 3.0)]),
            "tokens": np.concatenate([100 * step, 50 * step]),
            "step_s": 0.3,
        }
    )
    return {"requests": requests, "telemetry": telemetry, "learners": learners}


def trace(**changes):
    return observe_block(**(frames() | changes), **REFERENCES)


def at(step, observed=None, last_step=0, merges=0, corridor=SECOND):
    return (observed or trace()).observe(corridor, last_step, step - last_step, merges)


def test_counts_hold_completed_seconds_only():
    assert at(4).counts_per_s.tolist() == [1, 1, 1, 1]
    half = Corridor(h_min=1, h_max=20, step_s=0.5, merge_s=2.0, horizon_s=60.0)
    assert at(9, corridor=half).now_s == 4.5
    assert at(9, corridor=half).counts_per_s.tolist() == [1, 1, 1, 1]


def test_counts_reach_now_when_requests_have_ceased():
    assert at(12).counts_per_s.tolist() == [1] * 10 + [0, 0]


def test_counts_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        at(4).counts_per_s[0] = 9


def test_in_flight_is_strict_about_now():
    # at 3 s: the arrivals of 0.5, 1.5 and 2.5 s; the first is done at 2.0, the second at 3.0
    assert at(3).in_flight == 2
    exact = pd.DataFrame({"arrival_s": [1.0, 3.0], "done_s": [3.0, 5.0]})
    observed = trace(requests=exact)
    assert at(3, observed).in_flight == 1  # neither the arrival nor the end at 3 s is known
    assert at(4, observed).in_flight == 1


def test_a_request_that_ends_late_stays_in_flight():
    assert at(11, trace(requests=pd.DataFrame({"arrival_s": [1.0], "done_s": [90.0]}))).in_flight


def test_signals_are_window_means_over_their_references_before_now():
    # at 6 s the last row is that of 5.5 s; the load of 6 s is not known yet
    assert at(6).signals.serving == 0.25
    assert at(6).signals.network == 0.0
    # at 7 s: rows of 6.0 and 6.5 s in the window, 12 requests against 4, clipped
    assert at(7).signals.serving == 1.0
    # 20 bytes in the second before 6.5 s, 40 per second after
    assert at(7).signals.network == pytest.approx(0.2)
    assert at(9).signals.network == pytest.approx(0.4)


def test_a_window_mean_is_taken_over_the_window():
    telemetry = frames()["telemetry"]
    telemetry.loc[telemetry["t_s"] == 3.0, "running"] = 3.0
    # rows of 2.5, 3.0 and 3.5: the window of 1 s before 3.5 holds the last two
    assert at(4, trace(telemetry=telemetry)).signals.serving == pytest.approx((3 + 1) / 2 / 4)
    wide = observe_block(**(frames() | {"telemetry": telemetry}), **REFERENCES, window_s=1.5)
    assert at(4, wide).signals.serving == pytest.approx((1 + 3 + 1) / 3 / 4)


def test_inert_signals_are_named():
    assert trace().inert == ("checkpoint",)
    telemetry = frames()["telemetry"].assign(disk_written_bytes=np.arange(24) ** 2)
    assert trace(telemetry=telemetry).inert == ()


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("telemetry", "running"),
        ("telemetry", "waiting"),
        ("telemetry", "network_bytes"),
        ("telemetry", "disk_written_bytes"),
        ("telemetry", "t_s"),
        ("requests", "arrival_s"),
        ("requests", "done_s"),
        ("learners", "loss"),
        ("learners", "tokens"),
    ],
)
@pytest.mark.parametrize("how", ["dropped", "null"])
def test_a_missing_value_is_an_error_that_names_it(table, column, how):
    rows = frames()[table].astype({column: float})
    if how == "dropped":
        rows = rows.drop(columns=column)
    else:
        rows.loc[3, column] = np.nan
    with pytest.raises(ValueError, match=f"{table}: column '{column}'"):
        trace(**{table: rows})


def test_telemetry_that_ends_early_is_missing_not_zero():
    rows = frames()["telemetry"].query("t_s < 6")
    observed = trace(telemetry=rows)
    assert at(7, observed).signals.serving == 0.25  # the row of 5.5 s is recent enough
    with pytest.raises(ValueError, match=r"no row in the 2 s before 8 s .*5\.5 s.*serving"):
        at(8, observed)


def test_telemetry_that_starts_late_is_missing_not_zero():
    rows = frames()["telemetry"].query("t_s >= 6")
    with pytest.raises(ValueError, match="no row in the 2 s before 4 s"):
        at(4, trace(telemetry=rows))


def test_a_counter_that_falls_is_an_error():
    rows = frames()["telemetry"]
    rows.loc[20, "network_bytes"] = 0
    with pytest.raises(ValueError, match="'network_bytes' falls at 10 s"):
        trace(telemetry=rows)


def test_telemetry_out_of_order_is_an_error():
    with pytest.raises(ValueError, match="'t_s' must rise"):
        trace(telemetry=frames()["telemetry"].iloc[::-1])


@pytest.mark.parametrize("name", [*REFERENCES, "window_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan])
def test_references_must_be_positive(name, value):
    with pytest.raises(ValueError, match=name):
        observe_block(**frames(), **(REFERENCES | {name: value}))


def test_loss_drop_of_a_straight_line_is_exact():
    seen = at(10, last_step=4, merges=1)
    np.testing.assert_allclose(seen.loss_drop, [0.25 * 6, 0.0], atol=1e-12)
    assert seen.tokens.tolist() == [600, 300]
    assert at(1).loss_drop.tolist() == [0.0, 0.0]  # one loss shows no fall


def test_loss_drop_knows_no_loss_after_now():
    later = frames()["learners"]
    later.loc[later["step"] > 10, ["loss", "tokens"]] = [-1e6, 10**9]
    changed = at(10, trace(learners=later), last_step=4, merges=1)
    np.testing.assert_array_equal(changed.loss_drop, at(10, last_step=4, merges=1).loss_drop)
    np.testing.assert_array_equal(changed.tokens, [600, 300])


def test_loss_drop_averages_the_noise_over_the_gap():
    rng = np.random.default_rng(3)
    steps, sd, islands = 256, 0.1, 400
    step = np.tile(np.arange(1, steps + 1), islands)
    learners = pd.DataFrame(
        {
            "island": np.repeat(np.arange(islands), steps),
            "step": step,
            "loss": 5 - 0.001 * step + sd * rng.standard_normal(step.size),
            "tokens": step,
            "step_s": 0.1,
        }
    )
    fine = Corridor(h_min=1, h_max=512, step_s=1 / 32, merge_s=2.0, horizon_s=60.0)
    drop = at(steps, trace(learners=learners), corridor=fine).loss_drop
    expected_sd = sd * np.sqrt(12 / steps)
    assert abs(drop.mean() - 0.256) < 4 * expected_sd / np.sqrt(islands)
    assert drop.std() == pytest.approx(expected_sd, rel=0.15)
    assert expected_sd < 0.2 * sd * np.sqrt(2)  # against the difference of two batches


@pytest.mark.parametrize("spoil", ["gap", "short", "empty"])
def test_learners_must_have_every_step(spoil):
    rows = frames()["learners"]
    rows = {"gap": rows.drop(5), "short": rows.drop(23), "empty": rows.iloc[:0]}[spoil]
    with pytest.raises(ValueError, match="learners: column 'step' must run 1, 2, 3"):
        trace(learners=rows)


def test_learners_that_end_early_are_an_error():
    with pytest.raises(ValueError, match="ends at step 12, step 13 is missing"):
        at(13)


def test_rows_may_come_in_any_order():
    shuffled = {name: rows.sample(frac=1, random_state=1) for name, rows in frames().items()}
    shuffled["telemetry"] = frames()["telemetry"]
    one, other = at(9, trace(**shuffled)), at(9)
    np.testing.assert_array_equal(one.loss_drop, other.loss_drop)
    assert one.in_flight == other.in_flight


@pytest.mark.parametrize(
    ("blocking", "merges", "now_s", "staleness_s"),
    [(True, 0, 5.0, 5.0), (True, 1, 7.0, 5.0), (False, 0, 5.0, 5.0), (False, 1, 5.0, 3.0)],
)
def test_time_and_staleness(blocking, merges, now_s, staleness_s):
    corridor = Corridor(2, 20, 1.0, 2.0, 60.0, blocking=blocking)
    seen = trace().observe(corridor, 0, 5, merges)
    assert seen.now_s == now_s
    assert seen.staleness_s.tolist() == [staleness_s, staleness_s]
    assert (seen.step, seen.gap, seen.merges) == (5, 5, merges)
    assert (seen.h_min, seen.h_max, seen.step_s) == (2, 20, 1.0)
    assert (seen.merge_s, seen.horizon_s) == (2.0, 60.0)


def test_traces_of_different_islands_do_not_join(flat):
    with pytest.raises(ValueError, match="2 and 3 islands"):
        flat().replaced_after(5.0, 5, flat(islands=3))
