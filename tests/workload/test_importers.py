"""Trace formats: right values by hand, and one sentence for everything that is wrong."""

import gzip
import json
import re
import typing

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from safesync.tables.arrivals import ARRIVALS
from safesync.workload.families import Mmpp2
from safesync.workload.generate import generate
from safesync.workload.importers import FormatName, csv_text
from safesync.workload.importers import mooncake as mooncake_module
from safesync.workload.importers.base import TraceError
from safesync.workload.importers.reading import FORMATS, TraceFile
from safesync.workload.tokens import TokenLengths

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
BURST_V3 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
)
PLAIN = "arrival_s,prompt_tokens,output_tokens\n"


def written(tmp_path, content, name="mine.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path, name="auto", spread_s=None):
    """Return arrivals, prompts, outputs, rows read and rows dropped of a whole trace."""
    rows = list(TraceFile(path, name, spread_s).rows())
    arrays = [
        None if parts[0] is None else np.concatenate(parts)
        for parts in zip(
            *((some.arrival_s, some.prompt_tokens, some.output_tokens) for some in rows),
            strict=True,
        )
    ]
    return *arrays, sum(some.read for some in rows), sum(some.failed for some in rows)


def refusal(path, name="auto", spread_s=None):
    with pytest.raises(TraceError) as caught:
        read(path, name, spread_s)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.startswith(str(path))
    return sentence.removeprefix(str(path))


def line(timestamp, prompt=10, output=5):
    row = {"timestamp": timestamp, "input_length": prompt, "output_length": output}
    return json.dumps({**row, "hash_ids": [1, 2]}) + "\n"


def test_azure_2023_keeps_every_digit_of_its_stamps(tmp_path):
    text = AZURE + (
        "2023-11-16 18:17:03.9799600,4808,10\r\n"
        "2023-11-16 18:17:03.9799601,3180,8\r\n"
        "2023-11-16 18:17:04.0319600,110,27\r\n"
        "2023-11-17 00:00:00.0000000,7433,14"  # no final newline, and the next day
    )
    path = written(tmp_path, text)
    assert TraceFile(path).format.name == "azure_2023"
    arrival_s, prompts, outputs, rows, failed = read(path)
    expected = [0, 1e-7, 0.052, 5 * 3600 + 42 * 60 + 56.02004]
    np.testing.assert_allclose(arrival_s, expected, rtol=0, atol=1e-11)
    assert prompts.tolist() == [4808, 3180, 110, 7433]
    assert outputs.tolist() == [10, 8, 27, 14]
    assert (rows, failed) == (4, 0)


def test_azure_2024_reads_zones_and_whole_seconds(tmp_path):
    text = AZURE.replace("\r", "") + (
        "2024-05-10 00:00:00.009930+00:00,100,10\n"
        "2024-05-10 00:00:01+00:00,200,20\n"
        "2024-05-10 02:00:02.5+02:00,300,30\n"  # the same day in another zone
    )
    path = written(tmp_path, text)
    assert TraceFile(path).format.name == "azure_2024"
    arrival_s, *_ = read(path)
    np.testing.assert_allclose(arrival_s, [0, 0.99007, 2.49007], rtol=0, atol=1e-11)


def test_a_byte_order_mark_blank_lines_and_further_columns_do_no_harm_and_are_told(tmp_path):
    text = "\ufeffTIMESTAMP,Site,ContextTokens,GeneratedTokens\r\n" + (
        "2023-11-16 18:17:03.5,east,4808,10\r\n\r\n2023-11-16 18:17:05,west,3180,8\r\n\r\n"
    )
    path = written(tmp_path, text)
    arrival_s, prompts, *_ = read(path)
    assert arrival_s.tolist() == [0, 1.5]
    assert prompts.tolist() == [4808, 3180]
    assert TraceFile(path).notes() == [
        "a byte-order mark was skipped",
        "columns passed over: Site",
    ]


@pytest.mark.parametrize(
    ("header", "row"),
    [
        (BURST, "{stamp},ChatGPT,{prompt},{output},0,Conversation log\n"),
        (BURST_V3, "{stamp}.0,1722ac82-0a46,43,GPT-4,{prompt},{output},0,Conversation log\n"),
        (BURST_V3, "{stamp}.0,,,GPT-4,{prompt}.0,{output}.0,0,API log\n"),
    ],
    ids=["v1", "v3 conversation", "v3 API"],
)
def test_burstgpt_is_read_by_name_and_its_failures_are_dropped_and_counted(tmp_path, header, row):
    rows = [(19440110, 472, 18), (19440110, 0, 0), (19440113, 1087, 0), (19440115, 417, 276)]
    text = header + "".join(
        row.format(stamp=stamp, prompt=prompt, output=output) for stamp, prompt, output in rows
    )
    path = written(tmp_path, text)
    assert TraceFile(path).format.name == "burstgpt"
    arrival_s, prompts, outputs, count, failed = read(path, spread_s=0)
    assert arrival_s.tolist() == [0, 5]
    assert prompts.tolist() == [472, 417]
    assert outputs.tolist() == [18, 276]
    assert (count, failed) == (4, 2)
    spread, *_ = read(path)
    assert np.all((spread >= [0, 5]) & (spread < [1, 6]))
    assert np.all(spread != [0, 5])


def test_mooncake_batches_are_spread_within_their_grid(tmp_path):
    rng = np.random.default_rng(3)
    stamps = np.repeat(np.arange(400) * 3_000 + rng.integers(-2, 3, 400), rng.integers(2, 28, 400))
    stamps -= stamps[0]
    path = written(tmp_path, "".join(line(int(stamp)) for stamp in stamps), "trace.jsonl")
    assert TraceFile(path).format.name == "mooncake"
    raw, *_ = read(path, spread_s=0)
    np.testing.assert_allclose(raw, stamps / 1e3)
    spread, *_ = read(path)
    assert np.unique(spread).size == stamps.size
    assert stats.kstest((spread - raw) / 3, "uniform").pvalue > 0.001
    np.testing.assert_array_equal(spread, read(path)[0])  # the same at every reading
    assert TraceFile(path).notes() == ["columns passed over: hash_ids"]


def test_spreading_makes_a_poisson_process_of_its_batches(tmp_path):
    """The quirk itself: counts of 1 s are bursts on the grid, and Poisson once spread."""
    rng = np.random.default_rng(4)
    stamps = np.repeat(np.arange(1_500) * 3_000, rng.poisson(10, 1_500))
    path = written(tmp_path, "".join(line(int(stamp)) for stamp in stamps), "trace.jsonl")

    def dispersion(spread_s):
        times = read(path, spread_s=spread_s)[0]
        counts = np.bincount(times.astype(int), minlength=4_500)[:4_497]
        return counts.var() / counts.mean()

    assert dispersion(0) > 7
    assert abs(dispersion(None) - 1) < 4 * np.sqrt(2 / 4_497)


def test_exact_stamps_in_mooncakes_clothes_are_not_smeared(tmp_path):
    path = written(tmp_path, line(0) + line(0) + line(3_001) + line(3_401), "trace.jsonl")
    assert refusal(path) == (
        ", line 4: column 'timestamp' is 0.4 s after the row above it, but requests are to be "
        "spread over a grid of 3 s; if the stamps are exact, set spread_s: 0"
    )
    assert read(path, spread_s=0)[0].tolist() == [0, 0, 3.001, 3.401]


def test_plain_csv_may_come_without_lengths(tmp_path):
    path = written(tmp_path, "arrival_s,user\n1.5,a\n1.5,b\n4,c")
    arrival_s, prompts, outputs, rows, _ = read(path)
    assert arrival_s.tolist() == [0, 0, 2.5]
    assert (prompts, outputs, rows) == (None, None, 3)


def test_arrivals_of_safesync_itself_are_a_trace(tmp_path):
    rows, facts = generate(Mmpp2(), TokenLengths(), 200.0, "bursty", 1)
    path = tmp_path / "part.parquet"
    ARRIVALS.write(path, rows, facts)
    assert TraceFile(path).format.name == "arrivals_parquet"
    arrival_s, prompts, outputs, count, _ = read(path)
    np.testing.assert_array_equal(arrival_s, rows["arrival_s"] - rows["arrival_s"][0])
    assert count == len(rows)
    assert (set(prompts), set(outputs)) == ({64}, {16})
    assert TraceFile(path).notes() == ["columns passed over: request_id"]


@pytest.mark.parametrize("kind", ["int64", "float32", "float64"])
def test_parquet_takes_any_number(tmp_path, kind):
    path = tmp_path / "mine.parquet"
    pd.DataFrame({"arrival_s": np.array([2, 3, 7], dtype=kind)}).to_parquet(path)
    assert read(path)[0].tolist() == [0, 1, 5]


A = AZURE + "2023-11-16 18:17:03.5,10,5\r\n"
P = PLAIN + "1,10,5\n"
J = line(0)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "azure_2023",
            AZURE + "17:03.9,4808,10\r\n",
            ", line 2: column 'TIMESTAMP' is '17:03.9', expected a stamp like 2023-11-16 "
            "18:17:03.9799600: a spreadsheet has cut it to minutes and seconds, date and hour are "
            "lost; take the file as published",
        ),
        (
            "azure_2023",
            A + "11/16/2023 18:17,4808,10\r\n",
            ", line 3: column 'TIMESTAMP' is '11/16/2023 18:17', expected a stamp like 2023-11-16 "
            "18:17:03.9799600",
        ),
        (
            "azure_2023",
            AZURE + "2024-05-10 00:00:00+00:00,1,1\r\n",
            ", line 2: column 'TIMESTAMP' is '2024-05-10 00:00:00+00:00', expected a stamp like "
            "2023-11-16 18:17:03.9799600; this file is of format 'azure_2024'",
        ),
        (
            "azure_2024",
            A,
            ", line 2: column 'TIMESTAMP' is '2023-11-16 18:17:03.5', expected a stamp like "
            "2024-05-10 00:00:00.009930+00:00; this file is of format 'azure_2023'",
        ),
        (
            "azure_2023",
            A + "2023-11-16 18:17:05.5,10,5\r\n2023-11-16 18:17:05.25,10,5\r\n",
            ", line 4: column 'TIMESTAMP' is 0.25 s before the row above it; sort the file by it",
        ),
        (
            "azure_2023",
            A + "2023-11-16 18:17:02,10,5\r\n",
            ", line 3: column 'TIMESTAMP' is 1.5 s before the row above it; sort the file by it",
        ),
        (
            "azure_2023",
            A + ",10,5\r\n",
            ", line 3: column 'TIMESTAMP' is empty or not a number, expected a time",
        ),
        (
            "azure_2023",
            AZURE + ",10,5\r\n",
            ", line 2: column 'TIMESTAMP' is empty or not a number, expected a time",
        ),
        (
            "arrivals_csv",
            P + "\n2,10,5\n1.5,10,5\n",
            ", line 5: column 'arrival_s' is 0.5 s before the row above it; sort the file by it",
        ),
        (
            "arrivals_csv",
            PLAIN + "-1,10,5\n2,10,5\n",
            ", line 2: column 'arrival_s' is -1, expected a time from 0 up",
        ),
        (
            "arrivals_csv",
            P + "NaN,10,5\n2,10,5\n",
            ", line 3: column 'arrival_s' is empty or not a number, expected a time",
        ),
        (
            "arrivals_csv",
            P + "inf,10,5\n",
            ", line 3: column 'arrival_s' is inf, expected a time",
        ),
        (
            "arrivals_csv",
            P + "soon,10,5\n",
            ", line 3: column 'arrival_s' is 'soon', expected a number of seconds",
        ),
        (
            "arrivals_csv",
            P + PLAIN + "2,10,5\n",
            ", line 3: the header again; were two files joined? Import one, or remove this line",
        ),
        (
            "arrivals_csv",
            P + "2,10\n",
            ", line 3: 2 fields, expected 3 (arrival_s, prompt_tokens, output_tokens)",
        ),
        (
            "arrivals_csv",
            P + "2,-3,5\n",
            ", line 3: column 'prompt_tokens' is -3, expected a whole number of tokens from 0 to "
            "2147483647",
        ),
        (
            "arrivals_csv",
            P + "2,3,1.5\n",
            ", line 3: column 'output_tokens' is 1.5, expected a whole number of tokens from 0 to "
            "2147483647",
        ),
        (
            "arrivals_csv",
            P + "2,1_300,5\n",
            ", line 3: column 'prompt_tokens' is '1_300', expected a whole number of tokens",
        ),
        (
            "arrivals_csv",
            P + "1_300,1,5\n",
            ", line 3: column 'arrival_s' is '1_300', expected a number of seconds",
        ),
        (
            "arrivals_csv",
            P + "2,3,many\n",
            ", line 3: column 'output_tokens' is 'many', expected a whole number of tokens",
        ),
        (
            "arrivals_csv",
            P + "2,,5\n",
            ", line 3: column 'prompt_tokens' is empty or not a number, expected a whole number of "
            "tokens from 0 to 2147483647",
        ),
        (
            "arrivals_csv",
            "arrival_s,arrival_s\n1,2\n",
            ", line 1: column 'arrival_s' stands twice in the header",
        ),
        (
            "arrivals_csv",
            "arrival_s,prompt_tokens\n1,2\n",
            ", line 1: no column 'output_tokens'; format 'arrivals_csv' has arrival_s, "
            "prompt_tokens, output_tokens (or 'arrival_s' alone), found arrival_s, prompt_tokens",
        ),
        (
            "burstgpt",
            PLAIN,
            ", line 1: no column 'Timestamp'; format 'burstgpt' has Timestamp, Request tokens, "
            "Response tokens, found arrival_s, prompt_tokens, output_tokens",
        ),
        ("arrivals_csv", PLAIN, ": no rows; expected one per request"),
        ("arrivals_csv", PLAIN.strip(), ": no rows; expected one per request"),
        (
            "arrivals_csv",
            b"arrival_s,\xff\n1,2\n",
            ", line 1: not UTF-8 text; expected a CSV file with a header",
        ),
        (
            "burstgpt",
            BURST + "5,ChatGPT,1,1,2,x\n5.4,ChatGPT,1,1,2,x\n",
            ", line 3: column 'Timestamp' is 0.4 s after the row above it, but requests are to be "
            "spread over a grid of 1 s; if the stamps are exact, set spread_s: 0",
        ),
        (
            "mooncake",
            J + '{"timestamp": 3000, "input_length": 1\n',
            ', line 2: not JSON; expected {"timestamp": ms, "input_length": tokens, '
            '"output_length": tokens, ...}',
        ),
        (
            "mooncake",
            J + "\n" + line("3000"),
            ', line 3: \'timestamp\' is "3000", expected {"timestamp": ms, "input_length": tokens, '
            '"output_length": tokens, ...}',
        ),
        (
            "mooncake",
            J + '{"timestamp": 3000, "output_length": 5}\n',
            ", line 2: column 'input_length' is empty or not a number, expected a whole number of "
            "tokens from 0 to 2147483647",
        ),
        (
            "mooncake",
            line(3_000) + line(0),
            ", line 2: column 'timestamp' is 3 s before the row above it; sort the file by it",
        ),
        ("mooncake", "\n\n", ": no rows; expected one per request"),
        ("arrivals_parquet", b"PAR1 cut off", None),
        ("auto", "", ": the file is empty; expected a trace of requests"),
        ("auto", "time,n\n1,2\n", None),
    ],
)
def test_what_is_wrong_is_one_sentence_that_names_the_place(tmp_path, name, text, said):
    sentence = refusal(written(tmp_path, text), name)
    if said is not None:
        assert sentence == said


def test_unknown_headers_and_files_are_told_what_is_known(tmp_path):
    sentence = refusal(written(tmp_path, "time,n\n1,2\n"))
    assert sentence.startswith(": its first line, 'time,n', is that of no known format; name")
    assert all(f"{name}: " in sentence for name in FORMATS)
    assert refusal(tmp_path / "none.csv") == ": no such file; expected a trace of requests"
    assert refusal(tmp_path) == ": it is a folder; expected the file of a trace"


def test_spaces_around_names_and_their_case_drop_no_column(tmp_path):
    text = "Arrival_s, Prompt_Tokens,user name , output_tokens\n1, 10,a,5\n2,11,b,6\n"
    path = written(tmp_path, text)
    assert TraceFile(path).format.name == "arrivals_csv"
    arrival_s, prompts, outputs, *_ = read(path)
    assert arrival_s.tolist() == [0, 1]
    assert (prompts.tolist(), outputs.tolist()) == ([10, 11], [5, 6])
    assert TraceFile(path).notes() == ["columns passed over: user name"]
    path = written(tmp_path, " timestamp,REQUEST TOKENS,response tokens\n5,1,2\n")
    assert TraceFile(path).format.name == "burstgpt"
    assert read(path)[1].tolist() == [1]
    # the name itself goes before one like it
    path = written(tmp_path, "Arrival_s,arrival_s\n9,1\n9,4\n")
    assert read(path)[0].tolist() == [0, 3]
    assert TraceFile(path).notes() == ["columns passed over: Arrival_s"]
    path = written(tmp_path, "Arrival_s,ARRIVAL_S\n9,1\n")
    assert refusal(path) == ", line 1: column 'arrival_s' stands twice in the header"
    path = written(tmp_path, "Arrival_s\nsoon\n")
    assert refusal(path) == (", line 2: column 'arrival_s' is 'soon', expected a number of seconds")


def test_parquet_columns_are_found_by_name_in_any_case(tmp_path):
    path = tmp_path / "mine.parquet"
    pd.DataFrame(
        {"Arrival_s": [0.0, 2.0], " prompt_tokens": [3, 4], "output_tokens": [5, 6], "user": [7, 8]}
    ).to_parquet(path)
    arrival_s, prompts, outputs, *_ = read(path)
    assert arrival_s.tolist() == [0, 2]
    assert (prompts.tolist(), outputs.tolist()) == ([3, 4], [5, 6])
    assert TraceFile(path).notes() == ["columns passed over: user"]
    pd.DataFrame({"Arrival_s": [0.0], "ARRIVAL_S": [0.0]}).to_parquet(path)
    assert refusal(path) == ": column 'arrival_s' stands twice"


def test_a_byte_that_is_not_utf8_hides_no_format(tmp_path):
    path = written(tmp_path, b"arrival_s,user\n1,J\xfcrgen\n2,b\n")
    assert read(path)[0].tolist() == [0, 1]
    path = written(tmp_path, b"arrival_s,user\n1,a\n\xb2,b\n")
    assert refusal(path) == (
        ", line 3: column 'arrival_s' is '\ufffd', expected a number of seconds"
    )
    zoned = AZURE.encode() + b"2024-05-10 00:00:01+00:00,1,2\r\n2024-05-10 00:00:02Z,\xff,2\r\n"
    assert refusal(written(tmp_path, zoned)) == (
        ", line 3: column 'ContextTokens' is '\ufffd', expected a whole number of tokens"
    )
    path = written(tmp_path, "größe,arrival_s\n1,1\n".encode("latin-1"))
    assert refusal(path).startswith(
        ": its first line, 'gr\ufffd\ufffde,arrival_s', is that of no known format; name"
    )
    assert refusal(path, "arrivals_csv") == (
        ", line 1: not UTF-8 text; expected a CSV file with a header"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(PLAIN.encode()), "it is compressed by gzip: unpack it"),
        (b"PK\x03\x04\x14", "it is a zip archive or a workbook: unpack it, or save it as CSV"),
        (PLAIN.encode("utf-16"), "it is UTF-16 text: save it as UTF-8"),
        (b"\xfe\xff" + PLAIN.encode("utf-16-be"), "it is UTF-16 text: save it as UTF-8"),
    ],
    ids=["gzip", "zip", "utf-16", "utf-16-be"],
)
def test_a_file_that_is_no_plain_text_is_told_what_it_is(tmp_path, content, said):
    for name in ("auto", "arrivals_csv", "mooncake", "arrivals_parquet"):
        assert refusal(written(tmp_path, content), name) == f": {said}"


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("arrival_s;prompt_tokens\n1;2\n", "'arrival_s;prompt_tokens' (its separator is ';', "),
        ("arrival_s\tprompt_tokens\n1\t2\n", "'arrival_s prompt_tokens' (its separator is a tab, "),
        ("\narrival_s\n1\n", "(blank), is that"),
        ("# of mine\narrival_s\n1\n", "'# of mine', is that"),
        ("1.5,10,20\n", "'1.5,10,20', is that"),
        ("\x1b[2J" + "x" * 80 + "\n", f"' [2J{'x' * 56}', is that"),
    ],
    ids=["semicolon", "tab", "blank", "comment", "no header", "long"],
)
def test_a_first_line_that_is_not_known_is_quoted(tmp_path, content, shown):
    sentence = refusal(written(tmp_path, content))
    assert sentence.startswith(f": its first line, {shown}")
    assert " is that of no known format; name the format, or give it the columns of " in sentence
    assert ("expected ','), is that" in sentence) == ("separator" in shown)


def test_parquet_faults_name_the_row_and_the_type(tmp_path):
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table({"arrival_s": [0.0, 1.0, None]}), path)
    assert refusal(path) == ", row 3: column 'arrival_s' is empty or not a number, expected a time"
    pq.write_table(pa.table({"arrival_s": [0.0, 3.0, 2.0]}), path)
    assert refusal(path).startswith(", row 3: column 'arrival_s' is 1 s before the row above it")
    pq.write_table(pa.table({"arrival_s": pa.array([0, 1], pa.timestamp("us"))}), path)
    assert refusal(path) == (
        ": column 'arrival_s' has type timestamp[us], expected a number of seconds"
    )
    pq.write_table(pa.table({"arrival_s": pa.array([], pa.float64())}), path)
    assert refusal(path) == ": no rows; expected one per request"
    pq.write_table(pa.table({"when": [1.0]}), path)
    assert refusal(path).startswith(": no column 'arrival_s'; format 'arrivals_parquet' has")


def test_files_are_read_in_blocks_and_faults_found_across_them(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_text, "_BLOCK_BYTES", 512)
    monkeypatch.setattr(mooncake_module, "_BLOCK_BYTES", 512)
    lines = [f"{2 + i},10,{i % 2}\n" for i in range(1_000)]
    path = written(tmp_path, PLAIN + "".join(lines))
    blocks = list(TraceFile(path).rows())
    assert len(blocks) > 10
    assert max(some.read for some in blocks) < 100
    arrival_s, _, _, rows, failed = read(path)
    assert arrival_s.tolist() == list(range(1, 1_000, 2))
    assert (rows, failed) == (1_000, 500)
    shares = [some.share for some in blocks]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    # the first row of a block is compared with the last row of the one before
    start = sum(some.read for some in blocks[:5])
    lines[start] = "1,10,1\n"
    path = written(tmp_path, PLAIN + "".join(lines))
    found = re.fullmatch(r", line (\d+): column 'arrival_s' is (\d+) s before .*", refusal(path))
    assert (int(found[1]), int(found[2])) == (start + 2, start)
    path = written(tmp_path, "".join(line(3_000 * i) for i in range(100)), "trace.jsonl")
    assert len(list(TraceFile(path).rows())) > 5
    assert read(path, spread_s=0)[0].tolist() == [3.0 * i for i in range(100)]


def test_config_knows_every_format():
    assert {"auto", *FORMATS} == set(typing.get_args(FormatName))


def test_lengths_of_a_trace_are_counted(tmp_path):
    path = written(tmp_path, PLAIN + "0,5,7\n1,5,8\n2,9,0\n3,4,8\n")
    file = TraceFile(path)
    values, counts = file.length_counts("prompt")
    assert (values.tolist(), counts.tolist()) == ([4, 5], [1, 2])
    values, counts = file.length_counts("output")
    assert (values.tolist(), counts.tolist()) == ([7, 8], [1, 2])
    with pytest.raises(TraceError, match="no columns prompt_tokens and output_tokens to draw from"):
        TraceFile(written(tmp_path, "arrival_s\n0\n")).length_counts("prompt")
    with pytest.raises(TraceError, match="no request with output tokens to draw from"):
        TraceFile(written(tmp_path, PLAIN + "0,1,0\n")).length_counts("prompt")
