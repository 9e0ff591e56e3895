"""Known parameters come back out of traces that the engine itself made."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from emulator.client import late

from safesync.emulator import Probe, Trace, Windows, agreement, calibrate, simulate
from safesync.emulator.costs import fit_costs

STEP = {
    "base_s": 0.02,
    "per_decode_s": 0.002,
    "per_prefill_token_s": 0.0005,
    "per_context_token_s": 1e-6,
}


def bursty_trace(seed, horizon_s=300, busy_rps=5.0):
    """One quiet request a second, and more for 8 s of every 30 s; many lengths."""
    rng = np.random.default_rng(seed)
    quiet = rng.uniform(0, horizon_s, rng.poisson(horizon_s))
    starts = np.arange(5, horizon_s - 8, 30)
    busy = (starts[:, None] + rng.uniform(0, 8, (starts.size, int(8 * busy_rps)))).ravel()
    arrival_s = np.sort(np.concatenate([quiet, busy]))
    size = arrival_s.size
    return Trace.of(arrival_s, rng.integers(20, 200, size), rng.integers(8, 33, size))


def merges(starts_s, merge_s=8.0):
    starts_s = np.asarray(starts_s, dtype=float)
    return pd.DataFrame({"start_s": starts_s, "end_s": starts_s + merge_s})


def captures(model, seed=1, starts_s=(10.3, 52.1, 98.7, 140.2, 200.9, 245.5), stretch=None):
    """Return (nosync requests, probe) of one trace under `model`."""
    trace, rows = bursty_trace(seed), merges(starts_s)
    nosync = simulate(trace, Windows.none(), model, chunks=True).to_requests()
    windows = replace(Windows.measured(rows), stretch=stretch and np.array(stretch))
    probe = simulate(trace, windows, model, chunks=True).to_requests()
    return nosync, Probe(probe, rows)


@pytest.fixture
def truth(make_model):
    def make(**contention):
        return make_model(
            step=STEP,
            contention=({"factor": 1.71} | contention,),
            overhead_s=0.012,
            max_num_seqs=64,
            max_num_batched_tokens=2048,
        )

    return make


def test_all_parameters_are_recovered(truth):
    model = truth()
    nosync, probe = captures(model)
    found = calibrate([nosync], [probe], model.limits, context=True)
    for name, expected in STEP.items():
        assert getattr(found.model.step, name) == pytest.approx(expected, rel=2e-3), name
    assert found.model.contention[0].factor == pytest.approx(1.71, rel=2e-3)
    assert found.model.client_overhead_s == pytest.approx(0.012, abs=1e-4)
    assert found.model.limits == model.limits

    fit = found.fit
    assert fit.residual_rmse_s < 1e-5 and abs(fit.hiccups) < 1e-4
    assert fit.windows == 6 and len(fit.factor_by_window) == 6
    assert max(fit.factor_by_window) - min(fit.factor_by_window) < 0.02
    for compared in (*fit.nosync, *fit.probe):
        assert compared.lost == 0
        assert max(abs(error.relative) for error in compared.errors) < 2e-3


def test_the_delay_of_each_step_is_told_from_the_factor(truth):
    model = truth(factor=1.3, delay_s=0.006)
    nosync, probe = captures(model)
    found = calibrate([nosync], [probe], model.limits, context=True)
    contention = found.model.contention[0]
    assert contention.delay_s == pytest.approx(0.006, rel=1e-2)
    assert contention.factor == pytest.approx(1.3, rel=1e-2)
    assert contention.per_sequence == 0 and contention.spread < 2e-3


def test_the_spread_of_windows_is_found_and_their_mean_kept(truth):
    stretch = (0.8, 1.25, 0.9, 1.1, 1.0, 1.0)
    model = truth(factor=1.5, delay_s=0.004)
    nosync, probe = captures(model, stretch=stretch)
    found = calibrate([nosync], [probe], model.limits, context=True)
    contention = found.model.contention[0]
    assert found.fit.contention_error == pytest.approx(contention.spread / 6**0.5)
    assert contention.spread == pytest.approx(np.log(stretch).std(ddof=1), rel=0.15)
    step_s = 0.03
    assert contention.factor + contention.delay_s / step_s == pytest.approx(
        1.5 + 0.004 / step_s, rel=0.05
    )


def test_the_overhead_inside_windows_is_recovered(truth):
    model = truth(factor=1.3, overhead_s=0.03)
    nosync, probe = captures(model)
    found = calibrate([nosync], [probe], model.limits, context=True)
    assert found.model.contention[0].overhead_s == pytest.approx(0.03, abs=2e-4)
    assert found.model.client_overhead_s == pytest.approx(0.012, abs=1e-4)
    assert abs(found.fit.probe[0].error("ttft", "p95").relative) < 5e-3


def test_without_an_arrival_inside_a_window_there_is_no_overhead_of_its_own(truth):
    model = truth()
    nosync, probe = captures(model)
    arrival_s = probe.requests["arrival_s"]
    inside = Windows.measured(probe.merges).hold(arrival_s.to_numpy())
    quiet = Probe(probe.requests.assign(status=np.where(inside, "error", "ok")), probe.merges)
    found = calibrate([nosync], [quiet], model.limits, context=True)
    assert found.model.contention[0].overhead_s == 0


def test_what_is_held_out_is_predicted_by_the_others(truth):
    model = truth()
    nosync, probe = captures(model)
    fit = calibrate([nosync], [probe], model.limits, context=True).fit
    assert fit.nosync_held_out.requests == len(nosync)
    met = sum(
        ((probe.requests["arrival_s"] < end_s) & (probe.requests["done_s"] > start_s)).sum()
        for start_s, end_s in zip(probe.merges["start_s"], probe.merges["end_s"], strict=True)
    )
    assert fit.probe_held_out.requests == met
    for held_out in (fit.nosync_held_out, fit.probe_held_out):
        assert max(abs(error.relative) for error in held_out.errors) < 5e-3


def test_a_window_unlike_the_others_shows_only_where_it_is_held_out(truth):
    # all windows in the quiet but the fourth, which meets a burst and contends twice as much
    model = truth(factor=1.3)
    starts_s = (15.0, 45.0, 75.0, 124.0)
    nosync, probe = captures(model, starts_s=starts_s, stretch=(1.0, 1.0, 1.0, 2.0))
    fit = calibrate([nosync], [probe], model.limits, context=True).fit
    in_sample = fit.probe[0].error("e2e", "p99").relative
    held_out = fit.probe_held_out.error("e2e", "p99").relative
    assert held_out < in_sample - 0.1 and held_out < -0.3


def test_a_drift_shows_only_where_a_half_is_held_out(truth):
    model = truth()
    slower = {name: 1.3 * value for name, value in STEP.items()}
    other = model.model_copy(update={"step": model.step.model_copy(update=slower)})
    nosync, probe = captures(model)
    late = captures(other)[0]
    drifted = nosync.where(nosync["arrival_s"] < nosync["arrival_s"].median(), late)
    drifted = drifted.astype(nosync.dtypes)
    fit = calibrate([drifted], [probe], model.limits).fit
    in_sample = fit.nosync[0].mean_absolute_e2e_s
    assert fit.nosync_held_out.mean_absolute_e2e_s > 1.5 * in_sample


def test_one_window_cannot_be_held_out(truth):
    model = truth()
    nosync, probe = captures(model, starts_s=(128.0,))
    fit = calibrate([nosync], [probe], model.limits).fit
    assert fit.probe_held_out is None and fit.contention_error is None and fit.windows == 1
    assert fit.nosync_held_out is not None


def test_the_largest_batch_of_the_captures_is_told(truth):
    model = truth()
    nosync, probe = captures(model)
    fit = calibrate([nosync], [probe], model.limits).fit
    most = simulate(bursty_trace(1), Windows.measured(probe.merges), model).most_sequences
    assert fit.most_sequences == most


def test_growth_with_the_batch_is_recovered(truth):
    model = truth(per_sequence=0.08)
    nosync, probe = captures(model)
    found = calibrate([nosync], [probe], model.limits, context=True, growth=True)
    assert found.model.contention[0].factor == pytest.approx(1.71, rel=5e-3)
    assert found.model.contention[0].per_sequence == pytest.approx(0.08, rel=2e-2)


def test_several_captures_are_fitted_together(truth):
    model = truth()
    pairs = [captures(model, seed) for seed in (1, 2)]
    found = calibrate([nosync for nosync, _ in pairs], [probe for _, probe in pairs], model.limits)
    assert len(found.fit.nosync) == len(found.fit.probe) == 2
    assert found.fit.windows == 12
    assert found.model.contention[0].factor == pytest.approx(1.71, rel=1e-2)


def test_hiccups_of_the_machine_do_not_bend_the_costs(truth):
    # 1 in 100 steps hangs for about 0.2 s, unknown to the fit
    model = truth()
    rng = np.random.default_rng(4)
    hangs = np.sort(rng.uniform(0, 300, 60))
    hangs = hangs[np.append(True, np.diff(hangs) > 0.5)]
    frozen = model.model_copy(
        update={"contention": (model.contention[0].model_copy(update={"factor": 1e6}),)}
    )
    trace = bursty_trace(1)
    rows = simulate(trace, Windows.planned(hangs, 0.2), frozen, chunks=True).to_requests()
    _, probe = captures(model)
    found = calibrate([rows], [probe], model.limits)
    step, hiccups = found.model.step, found.fit.hiccups
    assert 0.02 < hiccups < 0.2
    assert step.per_prefill_token_s / (1 + hiccups) == pytest.approx(0.0005, rel=0.05)
    assert step.base_s / (1 + hiccups) == pytest.approx(0.02, rel=0.05)
    assert abs(found.fit.nosync[0].error("e2e", "mean").relative) < 0.05


def test_an_exact_line_stays_exact_and_an_outlier_only_raises_it():
    rng = np.random.default_rng(0)
    causes = np.column_stack([np.ones(500), rng.integers(0, 9, 500)])
    seconds = causes @ [0.02, 0.003]
    costs, hiccups = fit_costs(causes, seconds)
    np.testing.assert_allclose(costs, [0.02, 0.003], rtol=1e-6)
    assert hiccups == pytest.approx(0, abs=1e-9)
    seconds[7] += 2.0
    costs, hiccups = fit_costs(causes, seconds)
    assert costs[1] / costs[0] == pytest.approx(0.15, rel=1e-2)
    assert (causes @ costs).sum() == pytest.approx(seconds.sum())


def test_too_little_is_refused_in_one_sentence(truth):
    model = truth()
    nosync, probe = captures(model)

    def refused(sentence, requests, *probes, **options):
        with pytest.raises(ValueError, match=sentence) as caught:
            calibrate([requests], probes, model.limits, **options)
        assert "\n" not in str(caught.value)

    refused("hold 29 successful requests, too few", nosync.head(29), probe)
    lost = nosync.assign(status=["ok"] * 10 + ["error"] * (len(nosync) - 10))
    refused("hold 10 successful requests, too few", lost, probe)
    refused("a probe capture holds no merge", nosync)
    refused("a probe capture holds no merge", nosync, probe, Probe(nosync, merges([])))
    refused("preempted sequences 3 times", nosync, probe, preemptions=3)
    refused("met 0 engine steps", nosync, Probe(probe.requests, merges([290.0 + 1000])))


def test_batches_too_alike_are_refused(truth):
    model = truth()
    _, probe = captures(model)
    apart = Trace.of(np.arange(0, 120, 2.0), np.full(60, 64), np.full(60, 16))
    lonely = simulate(apart, Windows.none(), model, chunks=True).to_requests()
    with pytest.raises(ValueError, match="too alike to tell the costs"):
        calibrate([lonely], [probe], model.limits)
    brief = simulate(
        Trace.of(apart.arrival_s, apart.prompt_tokens, np.full(60, 2)),
        Windows.none(),
        model,
        chunks=True,
    )
    with pytest.raises(ValueError, match=r"show 60 engine steps .* at least 100"):
        calibrate([brief.to_requests()], [probe], model.limits)


def test_agreement_counts_and_signs(truth):
    model = truth()
    nosync, _ = captures(model)
    slower = nosync.assign(
        done_s=nosync["arrival_s"] + 1.1 * (nosync["done_s"] - nosync["arrival_s"])
    )
    compared = agreement(nosync, slower)
    assert compared.error("e2e", "p95").relative == pytest.approx(0.1)
    assert compared.error("ttft", "p95").relative == 0
    mean_s = compared.error("e2e", "mean").measured_s
    assert compared.mean_absolute_e2e_s == pytest.approx(0.1 * mean_s)
    lost = nosync.assign(status=["timeout"] * 5 + ["ok"] * (len(nosync) - 5))
    assert (agreement(lost, nosync).lost, agreement(lost, nosync).requests) == (5, len(nosync) - 5)


def test_agreement_needs_the_same_requests(truth):
    nosync, _ = captures(truth())
    with pytest.raises(ValueError, match=r"request 3 was measured but not emulated"):
        agreement(nosync, nosync[nosync["request_id"] != 3])
    with pytest.raises(ValueError, match="no measured request succeeded"):
        agreement(nosync.assign(status="error"), nosync)


def test_a_late_client_does_not_shift_the_contention(truth):
    # 20 ms late on average, as long as a step: some steps are seen at the same instant
    model = truth()
    nosync, probe = captures(model)
    seen_late = Probe(late(probe.requests, 0.02), probe.merges)
    found = calibrate([nosync], [seen_late], model.limits)
    assert found.model.contention[0].factor == pytest.approx(1.71, rel=1e-2)
