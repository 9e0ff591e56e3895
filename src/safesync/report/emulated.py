"""How far the emulated tier of a run is from its real replays, in words and numbers."""

from collections.abc import Mapping

from safesync.report.wording import percent, signed

_FIGURES = ("e2e_p50_s", "e2e_p95_s", "e2e_p99_s", "ttft_p50_s", "ttft_p95_s", "ttft_p99_s")


def named(figure: str) -> str:
    """Return a figure of AGREEMENT as the page calls it, such as "e2e p95" or "TTFT p95"."""
    return figure.removesuffix("_s").replace("_", " ").replace("ttft", "TTFT")


def errors(agreement: Mapping | None) -> list[tuple[str, str]]:
    """Return (name, signed error) of a regime's ``Agreement``; nothing without one.

    Errors are emulated less measured: of the violation rate in points, with its interval over
    schedules, and of pooled latencies in percent of the measured one. A percentile that too few
    requests support says so.
    """
    if agreement is None:
        return []
    found = {figure["figure"]: figure for figure in agreement["figures"]}
    return [
        ("violation rate", _rate(agreement)),
        *((named(figure), _latency(found.get(figure))) for figure in _FIGURES),
    ]


def _rate(agreement: Mapping) -> str:
    said = f"{signed(agreement['error_points'])} points"
    if agreement["low_points"] is None:
        return said
    low, high = signed(agreement["low_points"]), signed(agreement["high_points"])
    return f"{said} ({percent(agreement['level'], 0)} interval {low} to {high})"


def _latency(figure: Mapping | None) -> str:
    if figure is None:
        return "too few requests"
    return (
        f"{signed(round(100 * figure['relative_error']), 0)} % "
        f"({figure['emulated']:.3g} s for {figure['measured']:.3g} s)"
    )
