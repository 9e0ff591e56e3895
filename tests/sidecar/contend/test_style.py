"""How each style spreads rounds over a window, simulated; a part costs 110 bytes and 0.02 s."""

import pytest

from safesync.outer import RoundCost
from safesync.sidecar.contend.cursor import Share
from safesync.sidecar.contend.plan import Plan
from safesync.sidecar.contend.style import Blocking, Overlapped, Throttled, style_of
from safesync.tables.plans import PlanError

PART_BYTES = 110


def window(style, length_s=4.0, take_s=None, late_s=0.0):
    """Run one window as a rank does; return when each round began, its share, and the end."""
    take_s = take_s or {Share.PART: 0.02, Share.WHOLE: 0.16}
    for share in style.warm_up:
        style.observe(share, take_s[share])
    now, begun, done = late_s, [], []
    while True:
        now = max(now, style.due_s(done, length_s))
        share = style.choose(done, length_s - now, at_boundary=True)
        if share is Share.NONE:
            return begun, now
        begun.append((now, share))
        parts = 1 if share is Share.PART else 8
        done.append(RoundCost(take_s[share], 0.0, 0.0, parts * PART_BYTES, 0))
        now += take_s[share]
        style.observe(share, take_s[share])


def test_blocking_never_waits():
    begun, end = window(Blocking(), length_s=4.055)
    assert [share for _, share in begun] == [Share.WHOLE] * 24 + [Share.PART] * 11
    assert [at for at, _ in begun] == pytest.approx(
        [0.16 * n for n in range(24)] + [3.84 + 0.02 * n for n in range(11)]
    )
    assert end == pytest.approx(4.06)


def test_throttled_reduces_its_bytes_per_second_in_parts_and_ends_on_plan():
    begun, end = window(Throttled(220.0, PART_BYTES, 4.0))
    assert begun == [(0.5 * n, Share.PART) for n in range(8)]
    assert end == 4.0


@pytest.mark.parametrize("bytes_per_s", [110 / 4.0, 300.0, 411.3, 5000.0])
@pytest.mark.parametrize("late_s", [0.0, 0.3])
def test_the_cap_holds_at_every_moment_and_over_the_window(bytes_per_s, late_s):
    begun, end = window(Throttled(bytes_per_s, PART_BYTES, 4.0), late_s=late_s)
    assert begun
    for place, (at, _) in enumerate(begun):
        # what began before has been paid for
        assert place * PART_BYTES <= bytes_per_s * at + 1e-9
    assert len(begun) * PART_BYTES <= bytes_per_s * 4.0
    assert abs(end - 4.0) <= 0.01 + 1e-9
    if late_s == 0:
        assert (len(begun) + 1) * PART_BYTES > min(bytes_per_s, PART_BYTES / 0.02) * 4.0 - 1e-9


def test_a_cap_that_pays_for_no_part_is_refused():
    with pytest.raises(PlanError, match=r"bandwidth_bytes_per_s 27 does not pay for one part"):
        Throttled(27.0, PART_BYTES, 4.0)


def test_overlapped_spreads_its_rounds_evenly_and_lasts_until_the_end():
    begun, end = window(Overlapped(10), length_s=20.0)
    assert [share for _, share in begun] == [Share.WHOLE] * 10
    assert [at for at, _ in begun] == pytest.approx([1.8 * n for n in range(10)])
    assert end == 20.0


def test_overlapped_makes_up_for_slow_rounds_before_the_end():
    # ten rounds of 1.95 s at a pace of 1.8 s: the last begins 1.35 s behind it
    slow = {Share.PART: 0.02, Share.WHOLE: 1.95}
    begun, end = window(Overlapped(10), length_s=20.0, take_s=slow)
    assert begun[-1][0] == pytest.approx(17.55)
    assert end == 20.0


def test_overlapped_does_all_its_rounds_however_late():
    slow = {Share.PART: 0.02, Share.WHOLE: 1.5}
    begun, end = window(Overlapped(4), take_s=slow, late_s=0.5)
    assert [at for at, _ in begun] == [0.5, 2.0, 3.5, 5.0]
    assert end == 6.5


def plan(**changes):
    files = ("rendezvous", "checkpoint_dir", "ready", "go", "stop", "merges")
    values = {
        **dict.fromkeys(files, "x"),
        "ranks": 2,
        "backend": "gloo",
        "windows": [],
        "merge_s": 2.0,
        "parameters": 20,
        "fragment_parameters": 8,
        "style": "blocking",
        "bandwidth_bytes_per_s": None,
        "passes": None,
        "horizon_s": 30.0,
        "timeout_s": 1.0,
    }
    return Plan.model_validate(values | changes)


def test_the_plan_names_the_style_and_its_sizes():
    assert isinstance(style_of(plan()), Blocking)
    throttled = style_of(plan(style="throttled", bandwidth_bytes_per_s=6.0))
    # a part is one parameter; with a flag per rank that is 12 bytes, which 2 s at 6 bytes/s pay
    begun, end = window(throttled, length_s=2.0)
    assert (begun, end) == ([(0.0, Share.PART)], 2.0)
    begun, _ = window(style_of(plan(style="overlapped", passes=3)), length_s=9.0)
    assert [at for at, _ in begun] == pytest.approx([0.9 * n for n in range(9)])


def test_windows_end_by_style():
    windows = [{"merge": k, "step": k, "start_s": start} for k, start in enumerate((1, 5, 12))]
    assert plan(windows=windows).ends_s() == [3.0, 7.0, 14.0]
    throttled = plan(windows=windows, style="throttled", bandwidth_bytes_per_s=9.0)
    assert throttled.ends_s() == [3.0, 7.0, 14.0]
    assert plan(windows=windows, style="overlapped", passes=1).ends_s() == [5.0, 12.0, 30.0]
    assert plan(style="overlapped", passes=1).ends_s() == []
