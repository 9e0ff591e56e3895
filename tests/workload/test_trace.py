"""A trace as the source of a block: slices, scaling, clipping, and refusals with arithmetic."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from safesync.tables.arrivals import ARRIVALS
from safesync.workload.cut import cut, free_slices, slice_of
from safesync.workload.families import Mmpp2
from safesync.workload.generate import generate
from safesync.workload.importers.base import TraceError
from safesync.workload.source import SOURCES, Source
from safesync.workload.streams import stream
from safesync.workload.tokens import Fixed, TokenLengths, clip
from safesync.workload.trace import Trace

TEN = list(range(1, 11))


@pytest.fixture
def steady(tmp_path):
    """A trace of a request in the middle of every second for 100 s; the prompt is the row."""
    path = tmp_path / "steady.csv"
    rows = "".join(f"{i},{i + 1},7\n" for i in range(101))
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)
    return str(path)


def block(trace, horizon_s=10.0, seed=1, seeds=(1,), regime="bursty", **more):
    return generate(trace, TokenLengths(), horizon_s, regime, seed, seeds=seeds, **more)


def refusal(trace, **more):
    with pytest.raises(TraceError) as caught:
        block(trace, **more)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.startswith(f"{trace.path}: ")
    return sentence.removeprefix(f"{trace.path}: ")


def test_two_lines_of_config_are_enough(steady):
    source = TypeAdapter(Source).validate_python({"family": "trace", "path": steady})
    rows, facts = block(source, context_tokens=1024)
    start = facts["trace"]["slice_start_s"]
    assert rows["arrival_s"].tolist() == [float(i) for i in range(10)]
    assert rows["prompt_tokens"].tolist() == [int(start) + i + 1 for i in range(10)]
    assert set(rows["output_tokens"]) == {7}
    assert facts["family"] == source.model_dump(mode="json")
    assert facts["scaling"] == "none"
    assert facts["intensity"] is None


def test_rows_fit_the_table_and_facts_survive_the_file(steady, tmp_path):
    rows, facts = block(Trace(path=steady), context_tokens=1024)
    path = tmp_path / "part.parquet"
    ARRIVALS.write(path, rows, facts)
    read, read_facts = ARRIVALS.read_with_metadata(path)
    assert read.equals(rows)
    assert read_facts == facts == json.loads(json.dumps(facts))


def test_facts_tell_what_was_done_by_hand(steady):
    trace = Trace(path=steady, window_start_s=20, window_s=50, scaling="stretch", target_rps=0.5)
    facts = block(trace, context_tokens=16)[1]["trace"]
    index = facts["slice_index"]
    assert index in range(10)
    assert facts == {
        "path": steady,
        "format": "arrivals_csv",
        "sha256": facts["sha256"],
        "notes": [],
        "spread_s": 0.0,
        "rows": 101,
        "failed_rows_dropped": 0,
        "span_s": 100.0,
        "window_start_s": 20.0,
        "window_s": 50.0,
        "window_requests": 50,
        "window_rps": 1.0,
        "slices": "disjoint",
        "slice_index": index,
        "slices_in_window": 10,
        "slices_without_requests": 0,
        "slice_start_s": 20.0 + 5 * index,
        "slice_s": 5.0,
        "slice_requests": 5,
        "target_rps": 0.5,
        "keep_probability": 1.0,
        "time_factor": 2.0,
        "lengths": "trace",
        "context_tokens": 16,
    }
    assert len(facts["sha256"]) == 64


def test_seeds_take_slices_that_share_no_request(steady):
    trace = Trace(path=steady)
    taken = [set(block(trace, seed=seed, seeds=TEN)[0]["prompt_tokens"]) for seed in TEN]
    assert sorted(len(rows) for rows in taken) == [10] * 10
    assert set.union(*taken) == set(range(1, 101))


def test_slices_are_dealt_by_seed_and_regime_and_a_seed_at_the_end_moves_none():
    ten = np.full(10, True)
    dealt = [slice_of("bursty", seed, TEN, ten) for seed in TEN]
    assert sorted(dealt) == list(range(10))
    assert dealt[:4] == [slice_of("bursty", seed, TEN[:4], ten) for seed in TEN[:4]]
    assert dealt != [slice_of("pressure", seed, TEN, ten) for seed in TEN]
    assert ten.all()
    first = [slice_of("bursty", seed, [seed], ten) for seed in range(2_000)]
    counts = np.bincount(first, minlength=10)
    assert abs(counts - 200).max() < 4 * np.sqrt(200)
    for seed, seeds in ((3, [1, 2]), (1, [1, 2, 3])):
        with pytest.raises(ValueError, match="slice_of"):
            slice_of("bursty", seed, seeds, np.array([True, False, True]))


def test_further_seeds_take_the_slices_that_are_left(steady):
    _, facts = block(Trace(path=steady))
    assert facts["trace"]["slices_in_window"] == 10
    assert free_slices(facts["trace"], 4) == 6
    holes = facts["trace"] | {"slices_without_requests": 5}
    assert free_slices(holes, 4) == 1
    assert free_slices(facts["trace"] | {"slices": "overlapping"}, 1) == 0


def test_stretching_multiplies_time_and_nothing_else(steady):
    # time runs 4 times as fast
    trace = Trace(path=steady, window_s=100, scaling="stretch", target_rps=4.0)
    rows, facts = block(trace, context_tokens=1024)
    assert facts["scaling"] == "stretch"
    start = facts["trace"]["slice_start_s"]
    assert rows["arrival_s"].tolist() == [i / 4 for i in range(40)]
    assert rows["prompt_tokens"].tolist() == [int(start) + i + 1 for i in range(40)]


def test_thinning_keeps_each_request_with_one_probability(tmp_path):
    path = tmp_path / "many.csv"
    path.write_text("arrival_s\n" + "".join(f"{i / 100}\n" for i in range(60_001)))
    trace = Trace(path=str(path), window_s=600, scaling="thin", target_rps=30.0)
    rows, facts = block(trace, horizon_s=200.0, seeds=(1, 2, 3))
    keep = facts["trace"]["keep_probability"]
    assert keep == pytest.approx(0.3)
    assert facts["trace"]["slice_requests"] == 20_000
    assert abs(len(rows) - 6_000) < 4 * np.sqrt(20_000 * 0.3 * 0.7)
    # kept requests stay where they were, and gaps are geometric: independent of each other
    ticks = np.rint(rows["arrival_s"].to_numpy() * 100)
    np.testing.assert_allclose(rows["arrival_s"] * 100, ticks, atol=1e-6)
    gaps = np.diff(ticks)
    assert abs(np.mean(gaps == 1) - 0.3) < 4 * np.sqrt(0.21 / gaps.size)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 4 / np.sqrt(gaps.size)
    other = block(trace, horizon_s=200.0, seed=2, seeds=(1, 2, 3))[0]
    assert abs(np.isin(ticks, np.rint(other["arrival_s"] * 100)).mean() - 0.3) < 0.03


def test_overlapping_slices_start_anywhere_and_are_told_apart(steady):
    trace = Trace(path=steady, slices="overlapping")
    starts = []
    for seed in range(30):
        facts = block(trace, horizon_s=80.0, seed=seed, seeds=range(30))[1]["trace"]
        assert facts["slices"] == "overlapping"
        starts.append(facts["slice_start_s"])
    assert 0 <= min(starts) < 5
    assert 15 < max(starts) < 20
    assert len(set(starts)) == 30


def test_a_slice_of_a_family_is_that_part_of_the_family(tmp_path):
    """Exported and imported, arrivals come back to the last bit but one subtraction."""
    rows, _ = generate(Mmpp2(), TokenLengths(), 400.0, "bursty", 1)
    path = tmp_path / "part.parquet"
    ARRIVALS.write(path, rows, {})
    cut_rows, facts = block(Trace(path=str(path)), horizon_s=50.0, context_tokens=1024)
    first, start = rows["arrival_s"][0], facts["trace"]["slice_start_s"]
    times = rows["arrival_s"] - first
    inside = times[(times >= start) & (times < start + 50)]
    np.testing.assert_array_equal(cut_rows["arrival_s"], inside - start)


def test_spread_batches_are_dealt_to_one_slice_each(tmp_path):
    path = tmp_path / "mooncake.jsonl"
    path.write_text(
        "".join(
            json.dumps({"timestamp": 3_000 * (i // 9), "input_length": i + 1, "output_length": 2})
            + "\n"
            for i in range(3_000)
        )
    )
    trace = Trace(path=str(path))
    taken = []
    for seed in TEN:  # slices of 7 s cut through the batches of 3 s
        rows, facts = block(trace, horizon_s=7.0, seed=seed, seeds=TEN)
        assert np.all(np.diff(rows["arrival_s"]) >= 0)
        assert facts["trace"]["spread_s"] == 3.0
        taken.extend(rows["prompt_tokens"])
    assert len(taken) == len(set(taken))


def test_failed_requests_do_not_count_for_the_rate(tmp_path):
    path = tmp_path / "burst.csv"
    path.write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        + "".join(f"{i},GPT-4,10,{5 * (i % 2)},15,API log\n" for i in range(101))
    )
    facts = block(Trace(path=str(path), spread_s=0), context_tokens=64)[1]["trace"]
    assert (facts["rows"], facts["failed_rows_dropped"]) == (101, 51)
    assert (facts["span_s"], facts["window_requests"], facts["window_rps"]) == (100, 50, 0.5)
    spread = block(Trace(path=str(path)), context_tokens=64)[1]["trace"]
    assert (spread["span_s"], spread["window_requests"]) == (101, 50)  # the last second counts


def test_lengths_come_from_the_trace_or_the_config(steady, tmp_path):
    tokens = TokenLengths(prompt=Fixed(tokens=3), output=Fixed(tokens=4))
    bare = tmp_path / "bare.csv"
    bare.write_text("arrival_s\n" + "".join(f"{i}\n" for i in range(30)))
    for path, lengths, source in (
        (steady, "auto", "trace"),
        (steady, "trace", "trace"),
        (steady, "config", "config"),
        (str(bare), "auto", "config"),
    ):
        trace = Trace(path=path, lengths=lengths)
        rows, facts = generate(trace, tokens, 10.0, "bursty", 1, context_tokens=512)
        assert facts["trace"]["lengths"] == source
        assert (set(rows["output_tokens"]) == {4}) == (source == "config")
    assert refusal(Trace(path=str(bare), lengths="trace")) == (
        "no columns prompt_tokens and output_tokens, which lengths: trace needs; add them, or set "
        "lengths: config"
    )


def test_clipping_by_hand():
    prompts, outputs = np.array([0, 50, 100, 90, 60]), np.array([10, 60, 1, 30, 40])
    cut_to = clip(prompts, outputs, context_tokens=100)
    # answers to half the context, then prompts to what is left of it
    assert cut_to.outputs.tolist() == [10, 50, 1, 30, 40]
    assert cut_to.prompts.tolist() == [1, 50, 99, 70, 60]
    assert (cut_to.clipped_prompts, cut_to.clipped_outputs) == (3, 1)
    assert cut_to.prompts.dtype == cut_to.outputs.dtype == np.int32
    own = clip(prompts, outputs, 100, max_prompt=55, max_output=60)
    assert own.outputs.tolist() == [10, 60, 1, 30, 40]
    assert own.prompts.tolist() == [1, 40, 55, 55, 55]
    free = clip(prompts, outputs)
    assert free.prompts.tolist() == [1, 50, 100, 90, 60]
    assert (free.clipped_prompts, free.clipped_outputs) == (1, 0)
    assert clip(prompts, outputs, 100, max_output=500).outputs.max() == 60
    assert clip(prompts, outputs, 40, max_output=500).outputs.max() == 39
    with pytest.raises(ValueError, match="context_tokens must be at least 2, found 1"):
        clip(prompts, outputs, 1)


def test_prompts_longer_than_the_context_are_cut_and_counted(steady):
    rows, facts = block(Trace(path=steady), horizon_s=100.0, context_tokens=64)
    assert rows["prompt_tokens"].tolist() == [min(i + 1, 57) for i in range(100)]
    assert (facts["clipped_prompts"], facts["clipped_outputs"]) == (43, 0)


@pytest.mark.parametrize(
    ("keys", "more", "said"),
    [
        (
            {},
            {"horizon_s": 101.0},
            "too short: 1 x 101 s = 101 s of trace, one slice per seed, exceed the window "
            "[0, 100) s of 100 s; shorten horizon_s, widen the window",
        ),
        (
            {"window_start_s": 20},
            {"horizon_s": 30.0, "seeds": (1, 2, 3)},
            "too short: 3 x 30 s = 90 s of trace, one slice per seed, exceed the window "
            "[20, 100) s of 80 s; shorten horizon_s, widen the window, drop seeds, or set slices: "
            "overlapping",
        ),
        (
            {"window_s": 100, "scaling": "stretch", "target_rps": 2},
            {"horizon_s": 60.0},
            "too short: 1 x 120 s (horizon_s 60 / time_factor 0.5) = 120 s of trace, one slice per "
            "seed, exceed the window [0, 100) s of 100 s; shorten horizon_s, widen the window",
        ),
        (
            {"window_s": 100, "scaling": "thin", "target_rps": 2},
            {},
            "scaling: thin cannot raise the rate: target_rps 2 is above the window's 100 requests "
            "/ 100 s = 1 requests/s; lower target_rps, or set scaling: stretch",
        ),
        (
            {"window_start_s": 60, "window_s": 41},
            {},
            "the window starts at 60 s and ends at 101 s, but the trace's 101 rows span 100 s; set "
            "window_start_s and window_s within them",
        ),
        (
            {"window_start_s": 100},
            {},
            "the window starts at 100 s and ends at 100 s, but the trace's 101 rows span 100 s; "
            "set window_start_s and window_s within them",
        ),
    ],
)
def test_what_the_trace_cannot_serve_is_refused_with_the_arithmetic(steady, keys, more, said):
    assert refusal(Trace(path=steady, **keys), **more) == said


def test_a_trace_of_one_row_has_no_window(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("arrival_s\n5\n")
    assert refusal(Trace(path=str(path))) == (
        "the window starts at 0 s and ends at 0 s, but the trace's only row spans 0 s; set "
        "window_start_s and window_s within them"
    )


def test_a_window_of_exactly_the_slices_holds_them(tmp_path):
    path = tmp_path / "dense.csv"
    path.write_text("arrival_s\n" + "".join(f"{i / 100}\n" for i in range(101)))
    assert 0.7 / 0.1 < 7  # what would have lost one
    facts = block(Trace(path=str(path), window_s=0.7), horizon_s=0.1)[1]["trace"]
    assert facts["slices_in_window"] == 7


def test_slices_without_requests_are_passed_over_and_counted(tmp_path):
    path = tmp_path / "gap.csv"
    path.write_text("arrival_s\n0\n12\n13\n67\n99\n100\n")
    taken = set()
    for seed in (1, 2, 3, 4):
        facts = block(Trace(path=str(path)), seed=seed, seeds=(1, 2, 3, 4))[1]["trace"]
        assert (facts["slices_in_window"], facts["slices_without_requests"]) == (10, 6)
        taken.add((facts["slice_index"], facts["slice_requests"]))
    assert taken == {(0, 1), (1, 2), (6, 1), (9, 1)}
    assert refusal(Trace(path=str(path)), seeds=(1, 2, 3, 4, 5)) == (
        "5 seeds need a slice of 10 s each, but 6 of the window's 10 slices hold no request; "
        "lengthen horizon_s, widen the window or drop seeds"
    )


def per_second(path, scale, count=3_600):
    """Write ``count`` requests, one a second, with stamps of ``scale`` of them to the second."""
    path.write_text("arrival_s\n" + "".join(f"{i * scale}\n" for i in range(count)))
    return str(path)


@pytest.mark.parametrize(
    ("scale", "end"), [(10**6, "3.599e+09"), (10**9, "3.599e+12"), (1e297, "3.599e+300")]
)
def test_stamps_of_another_unit_are_refused_where_slices_would_be_absurdly_many(
    tmp_path, scale, end
):
    for slices in ("disjoint", "overlapping"):
        trace = Trace(path=per_second(tmp_path / "mine.csv", scale), slices=slices)
        assert refusal(trace, horizon_s=30.0) == (
            f"the window [0, {end}) s holds more than 1000000 slices of 30 s; stamps are read as "
            "seconds: if they are, narrow the window or lengthen horizon_s"
        )


def test_stretching_to_next_to_no_rate_is_refused(steady):
    trace = Trace(path=steady, window_s=100, scaling="stretch", target_rps=1e-9)
    assert refusal(trace) == (
        "the window [0, 100) s holds more than 1000000 slices of 1e-08 s (horizon_s 10 / "
        "time_factor 1e+09); stamps are read as seconds: if they are, narrow the window or "
        "lengthen horizon_s, or raise target_rps"
    )


def test_slices_that_are_mostly_empty_put_the_unit_in_doubt(tmp_path):
    trace = Trace(path=per_second(tmp_path / "ms.csv", 1_000))
    notes = block(trace, horizon_s=30.0)[1]["trace"]["notes"]
    # a request every 1000 s, in slices of 30 s
    assert notes == [
        "no columns prompt_tokens and output_tokens: lengths are the config's",
        "116367 of 119966 slices hold no request; stamps are read as seconds",
    ]
    # real batches, far apart
    batches = tmp_path / "batches.csv"
    batches.write_text("arrival_s\n" + "".join(f"{100 * (i // 150)}\n" for i in range(1_501)))
    facts = block(Trace(path=str(batches), lengths="config"))[1]["trace"]
    assert (facts["slices_in_window"], facts["slices_without_requests"]) == (100, 90)
    assert facts["notes"] == []
    sparse = tmp_path / "sparse.csv"
    sparse.write_text("arrival_s\n" + "".join(f"{20 * i}\n" for i in range(11)))
    facts = block(Trace(path=str(sparse), lengths="config"))[1]["trace"]
    assert (facts["slices_in_window"], facts["slices_without_requests"]) == (20, 10)
    assert facts["notes"] == []


def test_the_job_says_on_the_terminal_what_was_passed_over(tmp_path, capsys):
    path = tmp_path / "mine.csv"
    path.write_text("arrival_s,input_tokens\n" + "".join(f"{i},9\n" for i in range(31)))
    script = Path(__file__).parents[2] / "scripts/generate_arrivals.py"
    snakemake = SimpleNamespace(
        params=SimpleNamespace(
            arrivals={"family": "trace", "path": str(path)},
            tokens={},
            horizon_s=10.0,
            seeds=[1],
            context_tokens=512,
        ),
        wildcards=SimpleNamespace(regime="bursty", seed="1"),
        log=[str(tmp_path / "job.log")],
        output=SimpleNamespace(arrivals=str(tmp_path / "part.parquet")),
    )
    runpy.run_path(str(script), init_globals={"snakemake": snakemake})
    assert capsys.readouterr().err.splitlines()[-3:] == [
        "generate_arrivals: 10 requests in 10 s",
        f"generate_arrivals: {path}: columns passed over: input_tokens",
        f"generate_arrivals: {path}: no columns prompt_tokens and output_tokens: lengths are the "
        "config's",
    ]


def test_a_window_without_requests_or_a_slice_with_none_left_is_refused(tmp_path):
    path = tmp_path / "gap.csv"
    path.write_text("arrival_s\n0\n1\n99\n100\n")
    assert refusal(Trace(path=str(path), window_start_s=10, window_s=50)) == (
        "no request in the window [10, 60) s (0 of the file's 4 rows have no output tokens: "
        "requests that failed)"
    )
    thin = Trace(path=str(path), window_s=10, scaling="thin", target_rps=0.001)
    assert refusal(thin) == (
        "regime 'bursty', seed 1: none of 2 requests in [0, 10) s is left; choose another seed, a "
        "longer horizon_s or another window"
    )


def test_progress_runs_to_one(steady):
    shares = []
    cut(Trace(path=steady), 10.0, "bursty", 1, (1,), progress=shares.append)
    assert shares == sorted(shares)
    assert shares[0] > 0
    assert 1 / 3 in shares
    assert shares[-1] == 1


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"target_rps": 2}, r"target_rps \(2\) needs scaling: thin or stretch"),
        ({"scaling": "thin"}, "scaling: thin needs target_rps"),
        ({"format": "azure"}, "azure_2023"),
        ({"path": ""}, "path"),
        ({"window_s": 0}, "window_s"),
        ({"max_prompt_tokens": 0}, "max_prompt_tokens"),
        ({"speed": 2}, "speed"),
    ],
)
def test_bad_config_names_the_field(keys, said):
    with pytest.raises(ValidationError, match=said):
        TypeAdapter(Source).validate_python({"family": "trace", "path": "x.csv", **keys})


def test_every_source_is_in_the_union_and_says_what_it_reads():
    adapter = TypeAdapter(Source)
    for source in SOURCES:
        name = source.model_fields["family"].default
        more = {"path": "x.csv"} if name == "trace" else {}
        found = adapter.validate_python({"family": name, **more})
        assert type(found) is source
        assert found.files == (("x.csv",) if name == "trace" else ())


def test_thinning_pulls_dispersion_towards_poisson_as_theory_says(tmp_path):
    """Index of dispersion of a thinned process: 1 + p (I - 1); Cox and Isham 1980, section 4.3."""
    times = Mmpp2().simulate(20_000, stream("thinned"))
    path = tmp_path / "mmpp.csv"
    path.write_text("arrival_s\n" + "".join(f"{time!r}\n" for time in times.tolist()))

    def dispersion(arrival_s):
        counts = np.bincount(arrival_s.astype(int), minlength=19_900)[:19_900]
        return counts.var() / counts.mean()

    keep = 0.2
    window = {"window_start_s": 0.0, "window_s": 19_900.0}
    whole = block(Trace(path=str(path), **window), horizon_s=19_900.0)
    rate = whole[1]["trace"]["window_rps"]
    thin = Trace(path=str(path), **window, scaling="thin", target_rps=keep * rate)
    thinned = block(thin, horizon_s=19_900.0)[0]["arrival_s"].to_numpy()
    before = dispersion(whole[0]["arrival_s"].to_numpy())
    assert before > 5
    assert dispersion(thinned) == pytest.approx(1 + keep * (before - 1), rel=0.05)
