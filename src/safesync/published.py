"""A published study under this protocol, in Markdown: `python -m safesync.published`."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import pandas as pd
from tabulate import tabulate

from safesync.protocol.published import (
    RANDOM,
    Finding,
    Reading,
    findings,
    read_figures,
    readings,
)
from safesync.tables import write_document

FIGURES = "resources/published/figures.csv"
RESULT = "results/published.json"


def document(found: Sequence[Finding], read: Sequence[Reading]) -> dict:
    """Return numbers and verdicts as plain JSON values."""
    return {
        "source": '"Not all synchronization is safe": calibrated DiLoCo scheduling for shared AI '
        "infrastructure",
        "findings": [asdict(finding) | {"status": finding.status} for finding in found],
        "readings": [asdict(reading) for reading in read],
    }


def markdown(found: Sequence[Finding], read: Sequence[Reading]) -> str:
    """Return the page: the study's numbers, what the protocol says of its claims, and why."""
    return "\n".join(_page(found, read))


def _page(found: Sequence[Finding], read: Sequence[Reading]) -> Iterator[str]:
    yield "# A published study under this protocol\n"
    yield "## Its numbers\n"
    carried = [finding for finding in found if finding.value is not None]
    rows = [[f.what, f.unit, f.quoted, _value(f), f.status, f.how] for f in carried]
    headers = ["number", "unit", "quoted", "computed", "status", "from"]
    yield tabulate(rows, headers, tablefmt="github", disable_numparse=True)
    yield "\nQuoted, not recomputable:\n"
    rows = [[f.what, f.unit, f.quoted, f.how] for f in found if f.value is None]
    headers = ["number", "unit", "quoted", "because"]
    yield tabulate(rows, headers, tablefmt="github", disable_numparse=True)
    yield f"\n## What the protocol says of its claims, against {RANDOM}\n"
    rows = [
        [
            reading.regime,
            reading.policy,
            reading.result["verdict"],
            reading.lenient["verdict"],
            _gain(reading.result["gain"]),
            f"{reading.result['claim']['p_claim']:.3g}",
            f"{reading.result['claim']['p_holm']:.3g}",
            f"{reading.result['claim']['smallest']:.3g}",
        ]
        for reading in read
    ]
    headers = ["regime", "policy", "verdict", "statistics alone", "gain, points (90 %)"]
    headers += ["p_claim", "after Holm", "smallest"]
    yield tabulate(rows, headers, tablefmt="github", disable_numparse=True)
    for reading in read:
        verdict, alone = reading.result["verdict"], reading.lenient
        yield f"\n**{reading.policy}, {reading.regime}: {verdict}.** {reading.why}"
        if verdict != alone["verdict"]:
            yield f"Had every schedule kept the corridor: {alone['verdict']}. {alone['sentence']}"
    yield "\n## Its gates\n"
    gates = [{gate["name"]: gate for gate in reading.result["gates"]} for reading in read]
    rows = [[name, *(_state(of[name]["passed"]) for of in gates)] for name in gates[0]]
    headers = ["gate", *(f"{reading.policy}, {reading.regime}" for reading in read)]
    yield tabulate(rows, headers, tablefmt="github", disable_numparse=True)
    yield "\nCannot be checked:\n"
    missing = {name: gate for of in reversed(gates) for name, gate in of.items()}
    for name, gate in missing.items():
        if gate["passed"] is None:
            yield f"- {name}: {gate['sentence']}"


def _value(finding: Finding) -> str:
    decimals = 3 if finding.unit in ("%", "points") else 4
    return f"{finding.value:.{decimals}f}"


def _gain(gain: dict) -> str:
    return f"{gain['points']:+z.2f} ({gain['low_points']:+z.2f} to {gain['high_points']:+z.2f})"


def _state(passed: bool | None) -> str:
    return {True: "passed", False: "failed", None: "\u2013"}[passed]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the page and write it as JSON; one sentence when the figures cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m safesync.published")
    parser.add_argument("figures", nargs="?", default=FIGURES, help=f"default {FIGURES}")
    parser.add_argument("--json", default=RESULT, help=f"where the JSON goes, default {RESULT}")
    chosen = parser.parse_args(arguments)
    try:
        figures = read_figures(chosen.figures)
        found, read = findings(figures), readings(figures)
        write_document(chosen.json, document(found, read))
    except (ValueError, OSError, pd.errors.ParserError) as error:
        raise SystemExit(f"{parser.prog}: {error}") from None
    print(markdown(found, read))


if __name__ == "__main__":
    main()
