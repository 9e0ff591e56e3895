"""What every Snakemake process pays for: on a cluster each job reads the Snakefile anew."""

import re
import subprocess
import sys
from pathlib import Path

RULES = [Path("Snakefile"), *sorted(Path("workflow/rules").glob("*.smk"))]
HEAVY = {"locust", "numba", "pandas", "plotly", "pyarrow", "torch", "transformers", "vllm"}


def loaded(lines: list[str]) -> set[str]:
    """Return the heavy libraries that a process of these lines loads."""
    code = "\n".join([*lines, "import sys", "print(*sys.modules)"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return HEAVY & set(done.stdout.split())


def test_reading_the_rules_loads_no_heavy_library():
    imports = [
        line
        for path in RULES
        for line in path.read_text().splitlines()
        if re.match(r"(from|import) safesync", line)
    ]
    assert len(imports) >= 5
    configs = [f"read({str(path)!r})" for path in sorted(Path("config").glob("*.yaml"))]
    assert loaded([*imports, "from safesync.config import read", *configs]) == set()


def test_a_heavy_import_is_found():
    assert loaded(["from safesync.tables.requests import REQUESTS"]) >= {"pandas", "pyarrow"}
