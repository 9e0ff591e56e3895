"""The verdict table of a run in the terminal: `python -m safesync.show CONFIG`."""

import sys
from pathlib import Path

from pydantic import ValidationError
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from safesync.config import read
from safesync.protocol.document import VERSION, PolicyResult, VerdictDocument
from safesync.report.wording import p_value, signed
from safesync.tables import read_document

# told apart by word first; the colours are safe for the colour-blind
STYLES = {
    "EARNED": "bold blue",
    "PROVISIONAL": "blue",
    "HARMFUL": "bold yellow",
    "REFUSED": "yellow",
}
_WIDTH = 140  # of what is piped or written to a file


def read_verdict(path: Path) -> VerdictDocument:
    """Return the document in ``path``; ValueError in one sentence when it is not one of ours."""
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file; `make run` makes it")
    found = read_document(path, ("version", "answer", "verdicts"))
    if found["version"] != VERSION:
        raise ValueError(
            f"{path}: version {found['version']} of the verdict document, expected {VERSION}; "
            "`make run` makes it anew"
        )
    try:
        return VerdictDocument(**found)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{path}: field {field}: {first['msg']}") from None


def table(document: VerdictDocument) -> Table:
    """Return one row per verdict: what it is about, its word, its size and its p."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("tier", "regime", "policy", "verdict"):
        shown.add_column(heading, no_wrap=True)
    level = document.protocol["interval_level"]
    sizes = ("gain, points", f"{level:.0%} interval", "blocks", "p", "smallest p")
    for heading in (*sizes, "requests/10 min"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for result in document.verdicts:
        shown.add_row(
            result.tier,
            result.regime,
            result.policy,
            Text(result.verdict, style=STYLES.get(result.verdict, "")),
            *_size(result),
        )
    return shown


def _size(result: PolicyResult) -> list[str]:
    # what was not compared fairly has no size
    refused = result.verdict == "REFUSED"
    gain, claim = (None, None) if refused else (result.gain, result.claim)
    interval = points = requests = signed(None)
    if gain is not None:
        points = signed(gain.points)
        if gain.low_points is not None:
            requests = signed(gain.requests_per_sidecar_10min, 0)
            interval = f"{signed(gain.low_points)} to {signed(gain.high_points)}"
    p, smallest = (None, None) if claim is None else (claim.p_holm, claim.smallest)
    return [points, interval, str(len(result.blocks)), p_value(p), p_value(smallest), requests]


def show(document: VerdictDocument, console: Console) -> None:
    """Print the answer, the table, and a sentence for each verdict."""
    console.print(Text(document.answer, style="bold"))
    if not document.verdicts:
        return
    console.print(table(document))
    for result in document.verdicts:
        said = [result.sentence]
        if result.settle is not None:
            said.append(result.settle.sentence)
        console.print(
            Text(f"{result.policy} in {result.regime} ({result.tier}): ", style="bold").append(
                Text(" ".join(said), style="not bold")
            )
        )


def main(path: str) -> None:
    """Show the verdict of a run and where its page is, given its config or the document itself."""
    try:
        if path.endswith(".json"):
            found = Path(path)
        else:
            found = Path("results") / read(path).run / "verdict.json"
        document = read_verdict(found)
    except (ValueError, OSError) as error:
        sys.exit(str(error))
    width = None if sys.stdout.isatty() else _WIDTH
    show(document, Console(width=width, highlight=False, soft_wrap=False))
    page = found.parent / "report" / "index.html"
    if page.is_file():
        print(f"The report is {page}")


if __name__ == "__main__":
    main(sys.argv[1])
