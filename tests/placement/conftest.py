"""Small corridors with every feasible schedule, enumerated from the definition in seconds."""

import numpy as np
import pytest

from safesync.placement import Corridor

STEP_S = 0.125

# (h_min, h_max, merge steps, horizon steps, blocking)
SMALL = [
    (2, 4, 1, 12, True),
    (1, 3, 1, 9, True),
    (3, 6, 2, 25, True),
    (2, 7, 3, 40, True),
    (4, 4, 2, 30, True),
    (5, 9, 4, 4, True),
    (5, 9, 4, 3, True),
    (2, 4, 1, 12, False),
    (3, 6, 2, 25, False),
    (3, 8, 3, 24, False),
    (1, 8, 1, 10, False),
]


def corridor_of(h_min, h_max, merge, horizon, blocking=True):
    """A corridor given in steps; the step of 1/8 s makes every float in the definition exact."""
    return Corridor(h_min, h_max, STEP_S, merge * STEP_S, horizon * STEP_S, blocking)


def _starts(gaps, c):
    pauses = c.merge_s if c.blocking else 0.0
    return [sum(gaps[: k + 1]) * c.step_s + k * pauses for k in range(len(gaps))]


def _fits(gaps, c):
    return all(start + c.merge_s <= c.horizon_s for start in _starts(gaps, c))


def enumerate_schedules(c):
    """`{n: gaps of shape (count, n)}`, straight from design section 6."""
    found = {}

    def extend(gaps):
        # No merge is due after these gaps when one forced at h_max would not end inside.
        if not _fits((*gaps, c.h_max), c):
            found.setdefault(len(gaps), []).append(gaps)
        for gap in range(c.h_min, c.h_max + 1):
            if _fits((*gaps, gap), c):
                extend((*gaps, gap))

    extend(())
    return {
        n: np.array(rows, dtype=np.int64).reshape(len(rows), n) for n, rows in sorted(found.items())
    }


@pytest.fixture(scope="session", params=SMALL, ids=str)
def small(request):
    """A small corridor and all its feasible schedules by number of merges."""
    c = corridor_of(*request.param)
    return c, enumerate_schedules(c)


@pytest.fixture(scope="session")
def make_corridor():
    return corridor_of


@pytest.fixture(scope="session")
def enumeration():
    return enumerate_schedules


@pytest.fixture(scope="session")
def paper():
    """The published corridor: 600 s, 8 steps per second, 8 s merges, 4288 inner steps at N = 8."""
    return Corridor(128, 512, 0.125, 8.0, 600.0)


@pytest.fixture(scope="session")
def day():
    """A day at 8 steps per second, 8 s merges."""
    return Corridor(128, 512, 0.125, 8.0, 86_400.0)
