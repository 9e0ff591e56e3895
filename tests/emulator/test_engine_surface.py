"""What goes in and out of the engine: tables, bad input, compilation."""

import subprocess
import sys

import numba
import numpy as np
import pandas as pd
import pytest

from safesync.emulator import Trace, Windows, kernel, simulate
from safesync.tables.arrivals import ARRIVALS
from safesync.tables.requests import REQUESTS


def test_a_replay_becomes_a_requests_table(make_model, tmp_path):
    arrivals = ARRIVALS.empty()
    arrivals["request_id"], arrivals["arrival_s"] = [7, 9], [0.5, 1.5]
    arrivals["prompt_tokens"], arrivals["output_tokens"] = [8, 16], [3, 2]
    windows = Windows.none()
    replay = simulate(Trace.from_rows(arrivals), windows, make_model(), chunks=True)
    REQUESTS.write(tmp_path / "part.parquet", replay.to_requests())
    rows = REQUESTS.read(tmp_path / "part.parquet")
    assert rows["request_id"].tolist() == [7, 9]
    assert rows["sent_s"].tolist() == rows["arrival_s"].tolist() == [0.5, 1.5]
    assert rows["first_token_s"].tolist() == [2.5, 5.75]
    assert rows["done_s"].tolist() == rows["last_token_s"].tolist() == [7.25, 7.25]
    assert set(rows["status"]) == {"ok"} and rows["error"].isna().all()
    assert rows["chunk_s"][0].tolist() == [2.0, 5.25, 6.75]
    assert rows["chunk_tokens"][1].tolist() == [1, 1]


def test_chunk_times_are_null_unless_asked_for(make_model, tmp_path):
    replay = simulate(Trace.of([0], [8], [3]), Windows.none(), make_model())
    REQUESTS.write(tmp_path / "part.parquet", replay.to_requests())
    rows = REQUESTS.read(tmp_path / "part.parquet")
    assert rows["chunk_s"].isna().all() and rows["chunk_tokens"].isna().all()


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (([], [], []), "the trace has no request"),
        (([0, 1], [8], [1, 1]), "columns of one length"),
        (([0, np.nan], [8, 8], [1, 1]), "arrival_s of row 1 is nan"),
        (([1, 0], [8, 8], [1, 1]), "row 1 arrives at 0 s, before the row above"),
        (([0, 1], [8, 0], [1, 1]), "prompt_tokens of row 1 is 0"),
        (([0, 1], [8, 8], [0, 1]), "output_tokens of row 0 is 0"),
    ],
)
def test_a_bad_trace_is_refused_in_one_sentence(columns, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        Trace.of(*columns)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("starts", "ends", "sentence"),
    [
        ([0, 5], [4], "columns of one length"),
        ([0], [np.inf], "not finite"),
        ([3], [3], "window 0 ends at 3 s, not after its start at 3 s"),
        ([0, 5], [6, 9], "window 1 starts at 5 s, before window 0 ends at 6 s"),
        ([5, 0], [6, 1], "window 1 starts at 0 s, before window 0 ends at 6 s"),
    ],
)
def test_bad_windows_are_refused_in_one_sentence(starts, ends, sentence):
    with pytest.raises(ValueError, match=sentence):
        Windows.of(starts, ends)


def test_requests_that_no_server_could_finish_are_refused(make_model):
    trace = Trace.of([0, 1], [8, 20], [1, 6], request_id=[4, 5])
    with pytest.raises(ValueError, match="request 5 needs 26 tokens, more than max_model_len"):
        simulate(trace, Windows.none(), make_model(max_model_len=25))
    # 25 tokens are computed, the last is only sampled: 24 fit 6 blocks of 4, 25 do not
    with pytest.raises(ValueError, match=r"more than the KV cache holds \(25\)"):
        simulate(trace, Windows.none(), make_model(block_size=4, kv_blocks=6))
    simulate(trace, Windows.none(), make_model(block_size=5, kv_blocks=5))


def test_a_window_of_an_unknown_phase_is_refused(make_model):
    with pytest.raises(ValueError, match=r"phases \[1\]; the model has 1"):
        simulate(Trace.of([0], [8], [1]), Windows.of([0], [1], phase=[1]), make_model())


def test_planned_and_measured_windows():
    planned = Windows.planned([10, 30], 8)
    assert (planned.start_s.tolist(), planned.end_s.tolist()) == ([10, 30], [18, 38])
    merges = pd.DataFrame({"start_s": [30.1, 10.0], "end_s": [38.4, 18.2]})
    measured = Windows.measured(merges)
    assert (measured.start_s.tolist(), measured.end_s.tolist()) == ([10.0, 30.1], [18.2, 38.4])


def test_the_overlap_of_intervals_with_windows():
    windows = Windows.of([1, 4, 6], [3, 6, 7])
    rng = np.random.default_rng(2)
    start, end = np.sort(rng.uniform(0, 9, (2, 300)), axis=0)
    pairs = zip(windows.start_s, windows.end_s, strict=True)
    expected = sum(np.maximum(np.minimum(end, e) - np.maximum(start, s), 0) for s, e in pairs)
    np.testing.assert_allclose(windows.overlap_s(start, end), expected, atol=1e-12)
    assert Windows.none().overlap_s(start, end).max() == 0


def test_importing_compiles_nothing():
    code = "from safesync.emulator import kernel; print(kernel.replay.signatures)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_without_a_folder_for_its_cache_the_kernel_compiles_all_the_same(monkeypatch):
    plain = numba.njit

    def refusing(*args, **options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return plain(*args, **options)

    monkeypatch.setattr(numba, "njit", refusing)
    assert kernel.compiled(lambda x: x + 1)(2) == 3


def test_varied_windows_keep_their_mean_and_share_their_luck():
    windows = Windows.planned(np.arange(0, 4e5, 20.0), 8)
    varied = windows.varied(0.3, np.random.default_rng(1))
    assert varied.stretch.mean() == pytest.approx(1, abs=0.01)
    assert np.log(varied.stretch).std() == pytest.approx(0.3, rel=0.02)
    elsewhere = Windows.planned([3.0, 40.0], 8).varied(0.3, np.random.default_rng(1))
    assert elsewhere.stretch.tolist() == varied.stretch[:2].tolist()
    assert windows.varied(0.0, np.random.default_rng(1)).stretch.tolist() == [1.0] * 20_000


@pytest.mark.parametrize("stretch", [[1.0, 0.0], [1.0, np.nan], [1.0]])
def test_a_bad_stretch_is_refused(stretch):
    with pytest.raises(ValueError, match="a window's stretch is missing or not above 0"):
        Windows(np.array([0.0, 9]), np.array([1.0, 10]), np.zeros(2, int), np.array(stretch))


def test_instants_that_windows_hold():
    windows = Windows.of([1, 4, 6], [3, 6, 7])
    at_s = np.array([0.9, 1, 2.9, 3, 4, 6, 6.9, 7])
    assert windows.hold(at_s).tolist() == [False, True, True, False, True, True, True, False]
    assert not Windows.none().hold(at_s).any()
