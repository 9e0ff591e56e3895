"""Whole studies out of the emulator: arrivals, capture, decisions, replays and score rows.

Arrivals are those of ``planted_overlap``, with answers of 10 to 30 tokens. The emulator is the
truth of the computed tier, and the source of the "measurements" of the real one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pandas as pd
import pyarrow as pa
from protocol.emulator_model import TRUTH, calibrated
from protocol.planted_overlap import CORRIDOR, requests_of

from safesync.emulator import Trace, Windows, simulate
from safesync.placement import overlap_cost
from safesync.policies import Policy
from safesync.policies.controls import matched_random
from safesync.policies.observe import ObservedTrace, observe_block
from safesync.policies.replay import decide_schedule
from safesync.protocol.calibrated import Calibrated
from safesync.protocol.emulated import (
    Placement,
    emulated_capture,
    emulated_rows,
    placements,
    shared_placements,
)
from safesync.protocol.overlap import overlap_rows
from safesync.protocol.parity import training_parity
from safesync.protocol.scores import score
from safesync.protocol.transfer import (
    effects,
    paired,
    transfer,
    transfer_document,
    transfer_gate,
)
from safesync.protocol.validity import Limits
from safesync.protocol.verdict import judge
from safesync.tables.arrivals import arrivals_sha256
from safesync.tables.scores import SCORES

THRESHOLD_S = 1.2  # longer than any answer takes alone, shorter than a long one in a window
LIMITS = Limits(lateness_s=0.02 * THRESHOLD_S, loop_lag_s=0.1, merge_tolerance_s=0.25)
IDENTITY = {"run": "planted", "regime": "bursty", "kind": "bursty", "role": "judge"}
_SIGNALS = {
    "network_reference_bytes_per_s": 2000.0,
    "disk_reference_bytes_per_s": 2000.0,
    "serving_reference": 8.0,
}


@cache
def model() -> Calibrated:
    """Return the calibrated document of the emulator that is true here."""
    return calibrated()


@dataclass(frozen=True, eq=False)
class Block:
    """Arrivals of one seed, and what follows from them without a merge."""

    seed: int
    locked: bool = False

    @cached_property
    def arrivals(self) -> pd.DataFrame:
        """ARRIVALS of the block."""
        arrival_s = requests_of(self.seed, locked=self.locked)["arrival_s"].to_numpy()
        rng = np.random.default_rng(self.seed + 500)
        return pd.DataFrame(
            {
                "request_id": np.arange(arrival_s.size, dtype=np.int64),
                "arrival_s": arrival_s,
                "prompt_tokens": np.int32(16),
                "output_tokens": rng.integers(10, 31, arrival_s.size).astype(np.int32),
            }
        )

    @cached_property
    def captured(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """REQUESTS and TELEMETRY of the run without merges."""
        return emulated_capture(self.arrivals, model(), CORRIDOR.horizon_s)

    @cached_property
    def trace(self) -> ObservedTrace:
        """What a policy observes."""
        steps = np.arange(1, int(CORRIDOR.horizon_s / CORRIDOR.step_s) + 1)
        learners = pd.DataFrame({"island": 0, "step": steps, "loss": 1.0, "tokens": 8 * steps})
        return observe_block(*self.captured, learners, **_SIGNALS)

    @cached_property
    def cost(self) -> np.ndarray:
        """Requests that a window would meet, per start step."""
        capture, _ = self.captured
        return overlap_cost(capture["arrival_s"].to_numpy(), capture["done_s"].to_numpy(), CORRIDOR)

    def decided(self, policy: Policy, merges: int | None = None) -> np.ndarray:
        """Return the merge starts of ``policy``; ``merges``: the budget that an oracle takes."""
        reference = None if merges is None else pd.DataFrame({"merge": range(merges)})
        rows, _ = decide_schedule(
            policy, CORRIDOR, self.trace, regime="bursty", seed=self.seed, reference=reference
        )
        return rows["start_s"].to_numpy()

    def drawn(self, merges: int, count: int) -> list[np.ndarray]:
        """Return the merge starts of matched-random draws."""
        rows = matched_random(CORRIDOR, merges, count, "bursty", self.seed)
        return [of["start_s"].to_numpy() for _, of in rows.groupby("draw")]

    def replay(self, starts_s: Sequence[float], gap_s: float = 0.0) -> pd.DataFrame:
        """Return the REQUESTS of a replay by a client that needs ``gap_s`` from send to send."""
        due_s = self.arrivals["arrival_s"].to_numpy()
        paced_s = gap_s * np.arange(due_s.size)
        sent_s = np.maximum.accumulate(due_s - paced_s) + paced_s if gap_s else due_s
        trace = Trace.from_rows(self.arrivals.assign(arrival_s=sent_s))
        requests = simulate(trace, Windows.planned(starts_s, CORRIDOR.merge_s), TRUTH).to_requests()
        return requests.assign(arrival_s=due_s, sent_s=sent_s)

    def measured(
        self, policy: str, draw: int, starts_s: Sequence[float], gap_s: float = 0.0
    ) -> dict:
        """Return the SCORES row of a replay as the real tier scores it."""
        starts_s = np.asarray(starts_s, dtype=float)
        windows = pd.DataFrame({"planned_s": starts_s, "start_s": starts_s})
        merges = windows.assign(end_s=starts_s + CORRIDOR.merge_s, rounds=1, reduced_bytes=1)
        return score(
            self.replay(starts_s, gap_s),
            merges,
            windows,
            self.arrivals,
            self.captured[0],
            slo_metric="e2e",
            threshold_s=THRESHOLD_S,
            merge_s=CORRIDOR.merge_s,
            feasible=policy == "nosync" or CORRIDOR.feasible(starts_s) is None,
            identity=IDENTITY
            | {
                "tier": "vllm",
                "seed": self.seed,
                "policy": policy,
                "draw": draw,
                "budget": len(starts_s),
            },
            manifest={
                "fingerprint": "machine-1",
                "arrivals_sha256": arrivals_sha256(self.arrivals),
                "figures": {"loop_lag_p99_s": 0.01, "prefix_hits": 0.0},
            },
            limits=LIMITS,
        )


Schedules = Mapping[Block, np.ndarray]


def emulated_study(policy: str, schedules: Schedules, draws: int = 30) -> pd.DataFrame:
    """Return the emulated SCORES rows of a policy whose merge starts are ``schedules``."""
    rows = [
        emulated_rows(
            _schedules(policy, starts_s, draws, block.seed),
            block.arrivals,
            block.captured[0],
            model(),
            CORRIDOR,
            slo_metric="e2e",
            threshold_s=THRESHOLD_S,
            identity=IDENTITY | {"seed": block.seed, "capture": "emulator"},
        )
        for block, starts_s in schedules.items()
    ]
    return _typed(pd.concat(rows, ignore_index=True))


def _schedules(policy: str, starts_s: np.ndarray, draws: int, seed: int) -> list[Placement]:
    """Return the run without merges, the policy, and the controls of its budget."""
    shared = shared_placements(CORRIDOR, draws, "bursty", seed)
    mine = [group for group in shared if group.gaps.shape[1] in (0, len(starts_s))]
    return [*mine, *placements(policy, starts_s, CORRIDOR, draws, "bursty", seed)]


def measured_study(
    policy: str,
    schedules: Schedules,
    *,
    draws: int = 5,
    control: int | None = None,
    gap_s: float = 0.0,
) -> pd.DataFrame:
    """Return the rows of the real tier; ``control``: the draws' merges, by default the policy's.

    ``gap_s``: of the client that replays the policy.
    """
    rows = []
    for block, starts_s in schedules.items():
        rows.append(block.measured("nosync", 0, []))
        rows.append(block.measured(policy, 0, starts_s, gap_s))
        drawn = block.drawn(len(starts_s) if control is None else control, draws)
        rows += [block.measured("matched_random", *one) for one in enumerate(drawn)]
    return _typed(pd.DataFrame(rows))


def _typed(rows: pd.DataFrame) -> pd.DataFrame:
    """Return SCORES rows with the types that they have once they were written and read."""
    return pa.Table.from_pandas(rows, SCORES.schema, preserve_index=False).to_pandas()


def overlap_study(policy: str, schedules: Schedules) -> pd.DataFrame:
    """Return the OVERLAP rows of a policy."""
    return pd.concat(
        [
            overlap_rows(
                {policy: starts_s},
                block.captured[0],
                CORRIDOR,
                identity=IDENTITY | {"seed": block.seed},
                max_orders=5000,
            )
            for block, starts_s in schedules.items()
        ],
        ignore_index=True,
    )


def transfer_of(blocks: Sequence[Block], merges: int) -> tuple:
    """Return gate 2 from a matched-random replay of each block, and the verdicts it belongs to.

    The model that predicts is the one that was "measured".
    """
    replays = []
    for block in blocks:
        (starts_s,) = block.drawn(merges, 1)
        windows = [(start, start + CORRIDOR.merge_s) for start in starts_s]
        merged, nosync = block.replay(starts_s), block.replay([])
        replays.append(paired(merged, nosync, windows, "e2e", merged, nosync))
    found = effects(replays, level=0.9)
    gate = transfer(found, delta=0.10, tolerance=0.15)
    return transfer_gate(transfer_document("bursty", gate, found))


def parity_of(policy: str, merges: int, worse: float = 0.0) -> tuple:
    """Return gate 6 of a policy that trains ``worse`` than its draws, nats."""
    alike = dict.fromkeys(("steps", "islands", "batch", "parameters", "slot", "slots"), 1)
    alike |= {"fragments": 1, "delay_steps": 0}
    runs = [
        alike
        | {
            "corpus_sha256": "ab",
            "regime": "bursty",
            "policy": who,
            "seed": 0,
            "draw": draw,
            "training_seed": seed,
            "merges": list(range(merges)),
            "final_heldout_loss": 2.0 + 0.001 * seed + off,
        }
        for seed in (1, 2, 3)
        for who, draw, off in (
            (policy, 0, worse + 0.0001 * seed),
            (f"matched_random_{merges}", 0, -0.001),
            (f"matched_random_{merges}", 1, 0.001),
        )
    ]
    return training_parity(policy, "bursty", runs, margin=0.02, alpha=0.05)


def judged(
    policy: str,
    scores: pd.DataFrame,
    overlap: pd.DataFrame | None = None,
    given: Sequence[tuple] = (),
) -> dict[str, dict]:
    """Return tier -> the result of the one claim."""
    document = judge(
        scores,
        {},
        [policy],
        thresholds_s={"bursty": THRESHOLD_S},
        horizon_s=CORRIDOR.horizon_s,
        replay_s=250.0,
        given_gates=given,
        overlap=overlap,
    )
    return {result["tier"]: result for result in document["verdicts"]}
