"""The timeline's strips above the lanes: what arrived and what was in flight, by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd

from safesync.report.figures.base import Colours
from safesync.report.figures.timeline import timeline
from safesync.report.replay import Replay


def strips(arrival_s, done_s, horizon_s):
    """Return x and y of the arrivals per second, and those of the requests in flight."""
    requests = pd.DataFrame({"arrival_s": arrival_s, "done_s": done_s})
    capture = Replay("vllm", "r", 23, "judge", "nosync", 0, 0, requests, pd.DataFrame())
    figure = timeline(
        [capture],
        {23: capture},
        ["nosync"],
        Colours(["nosync"]),
        metric="e2e",
        threshold_s=1.0,
        merge_s=8.0,
        horizon_s=horizon_s,
    )
    (variant,) = figure.variants
    arrivals, in_flight = variant.data
    return (arrivals["x"], arrivals["y"]), (in_flight["x"], in_flight["y"])


def test_requests_shorter_than_a_second_are_in_flight():
    # second 0: one; 1: two at once, then one more; 2: none; 3: one that stays; 4: it ends at 4.5
    arrival_s, done_s = [0.2, 1.1, 1.2, 1.8, 3.5], [0.4, 1.5, 1.6, 1.9, 4.5]
    rate, in_flight = strips(arrival_s, done_s, 6.0)
    assert rate == ([0, 1, 2, 3, 4, 5, 6], [1, 3, 0, 1, 0, 0, 0])
    assert in_flight == ([0, 1, 2, 3, 4, 5, 6], [1, 2, 0, 1, 1, 0, 0])


def test_what_is_never_done_stays_in_flight_and_the_last_bin_is_drawn_to_the_horizon():
    rate, in_flight = strips([1.0, 2.2], [2.0, np.nan], 2.5)
    assert rate == ([0, 1, 2, 2.5], [0, 1, 1, 1])
    assert in_flight == ([0, 1, 2, 2.5], [0, 1, 1, 1])


def test_bins_of_a_long_run_hold_their_most():
    # bins of 2 s: three at once in the second half of the first, one in the next
    rate, in_flight = strips([1.5, 1.5, 1.6, 2.5], [1.9, 1.9, 1.9, 2.6], 2400.0)
    assert (rate[0][:3], rate[1][:3]) == ([0, 2, 4], [1.5, 0.5, 0])
    assert in_flight[1][:3] == [3, 1, 0]
    assert len(in_flight[1]) == 1201


def test_merge_starts_are_listed_replay_by_replay():
    requests = pd.DataFrame({"arrival_s": [0.2], "done_s": [0.4], "status": ["ok"]})
    capture = Replay("vllm", "r", 23, "judge", "nosync", 0, 0, requests, pd.DataFrame())
    merges = pd.DataFrame(
        {
            "merge": [0, 1],
            "planned_s": [10.0, 40.0],
            "start_s": [10.26, np.nan],
            "end_s": [18.3, np.nan],
        }
    )
    replays = [
        replace(capture, policy=policy, draw=draw, budget=2, merges=merges)
        for policy, draw in (("matched_random", 1), ("calm", 0))
    ]
    figure = timeline(
        [capture, *replays],
        {23: capture},
        ["calm", "nosync", "matched_random"],
        Colours(["calm"]),
        metric="e2e",
        threshold_s=1.0,
        merge_s=8.0,
        horizon_s=60.0,
    )
    assert figure.details_title == "When merges start, s"
    assert figure.details == [f"{replay.name}, seed 23: 10.3, 40.0" for replay in replays[::-1]]
