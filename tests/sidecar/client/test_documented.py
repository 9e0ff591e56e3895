"""docs/load-generator.md names, for each case, a test that exists."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
CASES = 25


def test_every_case_names_its_test():
    text = (TESTS.parent / "docs/load-generator.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| (\d+) \|.*\| `(\w+)` \|$", text, re.MULTILINE)
    assert [int(number) for number, _ in named] == list(range(1, CASES + 1))
    sources = [
        path.read_text(encoding="utf-8")
        for room in ("sidecar/client", "workload")
        for path in sorted((TESTS / room).glob("test_*.py"))
    ]
    for number, name in named:
        assert any(f"def test_case_{int(number):02d}_{name}(" in source for source in sources), name
