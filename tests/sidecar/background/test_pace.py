from itertools import islice

import pytest

from safesync.sidecar.background.pace import due_s


class Clock:
    """A clock that moves when somebody waits, and the stop that ends the waiting."""

    def __init__(self, stop_s=float("inf")):
        self.now = 100.0
        self.stop_s = stop_s

    def __call__(self):
        return self.now

    def wait(self, timeout_s):
        self.now += timeout_s
        return self.now - 100.0 >= self.stop_s


@pytest.fixture(autouse=True)
def phase(monkeypatch):
    monkeypatch.setattr("random.uniform", lambda low, high: (low + high) / 4)


def turns(clock, count, takes_s=lambda due: 0.0):
    begins, dues = [], []
    for due in islice(due_s(1.0, clock, clock), count):
        begins.append(clock.now - 100.0)
        dues.append(due)
        clock.now += takes_s(due)
    return begins, dues


def test_work_is_due_in_every_period_at_a_phase_of_its_own():
    assert turns(Clock(), 4) == ([0.25, 1.25, 2.25, 3.25], [0.25, 1.0, 1.0, 1.0])


def test_a_full_share_leaves_no_pause():
    begins, dues = turns(Clock(), 5, takes_s=lambda due: 1.001 * due)
    assert sum(dues) == pytest.approx(begins[-1])
    assert begins == pytest.approx([0.25, 1.25, 2.251, 3.253001, 4.256004], abs=1e-5)


def test_what_one_long_turn_delayed_is_made_up_for():
    takes = iter([0.0, 2.5, 0.0, 0.0])
    begins, dues = turns(Clock(), 4, takes_s=lambda due: next(takes))
    assert begins == [0.25, 1.25, 3.75, 4.75]
    assert dues == [0.25, 1.0, 2.5, 1.0]


def test_what_is_too_late_is_given_up():
    takes = iter([90.0, 0.0])
    _, dues = turns(Clock(), 2, takes_s=lambda due: next(takes))
    assert dues == [0.25, 5.0]


def test_no_turn_comes_after_the_stop():
    begins, _ = turns(Clock(stop_s=2.0), 99)
    assert begins == [0.25, 1.25]
