"""Numbers as readers of the page see them; registered as filters of the template."""

import math
from collections.abc import Callable, Iterable

MINUS = "\u2212"
NOTHING = "\u2013"


def fixed(value: float | None, digits: int = 2) -> str:
    """Return ``value`` with ``digits`` decimals, a real minus sign, ∞, or a dash for no value."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    return f"{value:z.{digits}f}".replace("-", MINUS)  # z: nothing is -0.00


def signed(value: float | None, digits: int = 2) -> str:
    """Return ``value`` as ``fixed`` does, with its sign; what rounds to zero has none."""
    said = fixed(value, digits)
    if value is None or said.startswith((MINUS, NOTHING)) or not said.strip("0."):
        return said
    return f"+{said}"


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share as a percentage."""
    said = fixed(None if value is None else 100 * value, digits)
    return said if said == NOTHING else f"{said} %"


def milliseconds(value: float | None) -> str:
    """Return seconds as milliseconds."""
    said = fixed(None if value is None else 1000 * value, 1)
    return said if said == NOTHING else f"{said} ms"


def p_value(value: float | None) -> str:
    """Return a p-value with two significant digits."""
    if value is None:
        return NOTHING
    return f"{value:.2g}" if value >= 1e-4 else f"{value:.0e}"


def quantity(value: float | None) -> str:
    """Return bytes in the largest binary unit that leaves at least one before the point."""
    if value is None or math.isnan(value):
        return NOTHING
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def spread(values: Iterable[float], said: Callable[[float], str]) -> str:
    """Return the least and the most of the values that are known, each as ``said`` says it."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return NOTHING
    low, high = said(min(known)), said(max(known))
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


FILTERS = {
    "fixed": fixed,
    "signed": signed,
    "percent": percent,
    "ms": milliseconds,
    "p": p_value,
    "bytes": quantity,
}
