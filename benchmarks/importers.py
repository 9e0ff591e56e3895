"""Speed and memory of importing a trace, beside pandas.read_csv in the same run.

Run with `python benchmarks/importers.py [--rows N] [--folder PATH]`. It writes a CSV of N rows in
the Azure 2023 format and one with plain seconds (some 40 and 25 bytes a row), and reads each in a
process of its own: by pandas.read_csv whole; by pandas.read_csv with its stamps parsed, which is
what an import needs; by one pass of the importer (parse, check, count); and by an import, which is
two passes that end in one block's arrivals. Peak memory is the process's own, less what it held
before it read. `--rows 10000000` takes some minutes and 0.7 GB of disk.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

_CHUNK_ROWS = 1_000_000

_READ = r"""
import json, re, sys, time
from pathlib import Path
import pandas as pd
from safesync.workload.generate import generate
from safesync.workload.importers.reading import TraceFile
from safesync.workload.tokens import TokenLengths
from safesync.workload.trace import Trace

path, how = sys.argv[1:]
peak = lambda: int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024
before, begin = peak(), time.perf_counter()
if how == "pandas":
    rows = len(pd.read_csv(path))
elif how == "pandas, stamps parsed":
    rows = len(pd.read_csv(path, parse_dates=["TIMESTAMP"]))
elif how == "importer, one pass":
    rows = sum(some.read for some in TraceFile(path).rows())
else:
    facts = generate(Trace(path=path), TokenLengths(), 60.0, "bench", 1, context_tokens=2048)[1]
    rows = facts["trace"]["rows"]
print(json.dumps([rows, time.perf_counter() - begin, peak() - before]))
"""


def write(folder: Path, rows: int) -> tuple[Path, Path]:
    """Write the same requests, some 100 a second, in both formats."""
    rng = np.random.default_rng(0)
    azure, plain = folder / "azure.csv", folder / "plain.csv"
    with azure.open("w", newline="") as zoneless, plain.open("w") as seconds:
        zoneless.write("TIMESTAMP,ContextTokens,GeneratedTokens\r\n")
        seconds.write("arrival_s,prompt_tokens,output_tokens\n")
        start_ns = 0
        for first in range(0, rows, _CHUNK_ROWS):
            count = min(_CHUNK_ROWS, rows - first)
            ns = start_ns + np.cumsum(rng.exponential(1e7, count)).astype(np.int64) // 100 * 100
            start_ns = int(ns[-1])
            prompts, outputs = rng.integers(1, 8_000, count), rng.integers(1, 900, count)
            stamps = (np.datetime64("2023-11-16T18:17:03", "ns") + ns).astype(str)
            zoneless.writelines(
                f"{stamp[:10]} {stamp[11:27]},{prompt},{output}\r\n"
                for stamp, prompt, output in zip(stamps, prompts, outputs, strict=True)
            )
            seconds.writelines(
                f"{second:.7f},{prompt},{output}\n"
                for second, prompt, output in zip(ns / 1e9, prompts, outputs, strict=True)
            )
    return azure, plain


def read(path: Path, how: str) -> tuple[int, float, float]:
    """Return rows, seconds and MiB of peak memory of one way to read ``path``."""
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(path), how], check=True, capture_output=True, text=True
    )
    rows, took_s, mib = json.loads(done.stdout)
    return rows, took_s, mib


def main() -> int:
    """Print one line per file and way to read it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--folder", type=Path, help="where to write the files (default: a new one)")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        for path in write(Path(folder), chosen.rows):
            print(f"{path.name}: {chosen.rows:,} rows, {path.stat().st_size / 1e6:,.0f} MB")
            pandas_rate = None
            for how in (
                "pandas",
                *(["pandas, stamps parsed"] if path.name == "azure.csv" else []),
                "importer, one pass",
                "import of a block",
            ):
                rows, took_s, mib = read(path, how)
                if rows != chosen.rows:
                    print(f"  {how}: {rows:,} rows found: FAILS")
                    return 1
                rate = rows / took_s
                pandas_rate = pandas_rate or rate
                print(
                    f"  {how:<24} {rate / 1e6:8.2f} M rows/s {rate / pandas_rate:8.2f} x pandas"
                    f" {mib:9,.0f} MiB"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
