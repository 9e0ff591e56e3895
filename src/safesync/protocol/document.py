"""verdict.json: the fields, their units and meaning. Rates are shares (0.01 = 1 point).

On the measured tiers a rate is a violation rate; on the tier "overlap" it is the requests that the
merge windows meet, as a share of all requests of the block.

``VerdictDocument.model_json_schema()`` is the schema; infinity and NaN are refused, null means
"there is no such figure".
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

VERSION = 5

Word = Literal["EARNED", "PROVISIONAL", "TIED", "INCONCLUSIVE", "HARMFUL", "REFUSED"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


class GateResult(_Part):
    """One gate of one verdict."""

    name: str
    passed: bool | None = Field(description="null: not computed, so the verdict is provisional")
    figure: float | None
    limit: float | None
    sentence: str
    refuses: bool = Field(description="true: failing it means REFUSED; false: it withholds EARNED")
    applies: bool = Field(
        description="false: it has no object on this tier and leaves nothing open"
    )


class Gain(_Part):
    """What the policy gains over the mean of its matched-random placements; positive is better."""

    rate: float = Field(description="minus the mean of d over blocks, as a share of requests")
    points: float = Field(description="the same in percentage points")
    low_points: float | None = Field(description="lower end of the interval; null below 2 blocks")
    high_points: float | None
    level: float = Field(description="confidence of the interval")
    note: str = Field(description="how the interval was computed, or why there is none")
    bootstrap_low_points: float | None = Field(
        description="lower end of the BCa bootstrap interval over blocks, of the same level: "
        "described only; null below 5 blocks"
    )
    bootstrap_high_points: float | None
    run_sd_points: float | None = Field(
        description="SD of one replay from run to run, by repeats of one schedule; null without "
        "repeats, and off the real tier"
    )
    requests_per_sidecar_10min: float = Field(description="offered rate x 600 s x gain")
    low_requests_per_sidecar_10min: float | None = Field(
        description="the same of the interval's lower end; null below 2 blocks"
    )
    high_requests_per_sidecar_10min: float | None


class PolicyBlock(_Part):
    """One block: the policy beside its draws."""

    seed: int
    budget: int = Field(description="merges")
    draws: int
    violation_rate: float
    excess_rate: float | None = Field(description="over the block's nosync capture")
    draws_violation_rate: float | None = Field(description="mean of the draws")
    draws_low: float | None = Field(description="lowest violation rate among the draws")
    draws_high: float | None
    difference: float | None = Field(
        description="d: policy minus mean of its draws; negative: better"
    )
    conditional_p: float | None = Field(
        description="the policy's place among the draws of this block, conditional on its trace"
    )
    spacing_violation_rate: float | None = Field(
        description="mean of its own gaps in other orders; null where the tier does not carry them"
    )
    capture: str = Field(description="tier of the run without merges that the policy observed")


class OverlapBlock(_Part):
    """One block on the overlap tier: the policy among all placements of its budget."""

    seed: int
    budget: int = Field(description="merges")
    requests: int = Field(description="requests of the block")
    overlap: int = Field(description="requests that the windows meet, summed over windows")
    overlap_rate: float = Field(description="overlap over requests")
    null_mean: float = Field(description="mean overlap of all placements, requests")
    null_sd: float
    optimum: int = Field(description="fewest that any placement meets")
    regret: int = Field(description="overlap minus optimum, requests")
    difference: float = Field(description="(overlap - null_mean) over requests; negative: better")
    conditional_p: float = Field(
        description="share of all placements that meet as few, conditional on this trace"
    )


class TestResult(_Part):
    """A p-value with the smallest that the design can give."""

    __test__ = False  # not a test class to pytest

    p: float
    smallest: float = Field(description="smallest attainable p of this design")
    arrangements: int | None = Field(description="null: a convolution, nothing was enumerated")
    exact: bool = Field(description="false: seeded Monte Carlo, (r + 1) / (n + 1)")


class Claim(_Part):
    """p_claim, the larger of its two parts, and Holm over the family."""

    p_claim: float
    p_holm: float
    smallest: float = Field(description="smallest attainable p_claim")
    randomization: TestResult = Field(description="conditional on these traces")
    sign_flip: TestResult


class Spacing(_Part):
    """The policy against its own gaps in other orders."""

    points: float = Field(description="gain over the mean of the orders; positive is better")
    test: Claim


class Decomposition(_Part):
    """policy - baseline = (draws - baseline) + (policy - draws), in points; negative: better."""

    baseline: str
    blocks: int
    total_points: float
    budget_points: float
    placement_points: float


class Assumed(_Part):
    """What is taken as true to say what would settle a case: what was seen in it, in points."""

    gain_points: float
    policy_sd_points: float = Field(description="SD of the policy over blocks")
    draw_sd_points: float = Field(
        description="SD of one draw within its block; 0 where the null is exact, or where no block "
        "has two draws: all is then laid to the policy"
    )
    difference_sd_points: float = Field(description="SD of a block's difference, at the draws here")
    spacing_points: float | None = Field(
        description="gain over its own gaps in other orders, which EARNED needs as well; null "
        "where the tier does not carry it"
    )
    spacing_sd_points: float | None = Field(description="SD of a block's gain over them")


class Settle(_Part):
    """What would settle an INCONCLUSIVE: the cheapest design beyond the one that has not."""

    resolving_blocks: int = Field(
        description="fewest judged blocks with which p_claim can fall to alpha over the family, at "
        "the draws here"
    )
    resolving_p: float = Field(description="smallest attainable p_claim with them")
    blocks: int | None = Field(
        description="judged blocks in all; null: no design that was tried settles it"
    )
    more_blocks: int | None
    draws: int | None = Field(description="draws per block; null also where the null is exact")
    smallest_p: float | None = Field(description="smallest attainable p_claim with that design")
    probability: float | None = Field(
        description="that it gives EARNED, HARMFUL or TIED; null: one block shows no noise, and "
        "the design is the least that is needed"
    )
    likely: Word | None = Field(description="the most likely of the three")
    assumed: Assumed | None = Field(description="null: one block shows no noise")
    replays: int | None = Field(
        description="further replays: per new block the capture, policy and draws; on the overlap "
        "tier the capture alone; on the emulator tier none"
    )
    wall_s: float | None = Field(description="their time at one after another, seconds")
    sentence: str


class AgreementFigure(_Part):
    """One latency percentile, pooled over the requests of all replays with merges."""

    figure: str = Field(description="such as e2e_p95_s")
    requests: int
    measured: float = Field(description="seconds")
    emulated: float = Field(description="seconds")
    relative_error: float = Field(description="emulated / measured - 1")


class Agreement(_Part):
    """Emulated against real replays of the same schedules, which calibration never saw."""

    replays: int = Field(description="real replays with merges")
    schedules: int = Field(description="distinct schedules among them; repeats are averaged")
    error_points: float = Field(
        description="mean over schedules of emulated - measured violation rate, points"
    )
    low_points: float | None = Field(description="its interval over schedules; null for one")
    high_points: float | None
    level: float
    worst_points: float = Field(description="the error of largest size of any schedule, points")
    noise_points: float | None = Field(
        description="run-to-run standard deviation of a schedule's rate; null without repeats"
    )
    noise_nosync_points: float | None = Field(description="the same without merges")
    repeated: int = Field(description="schedules with merges that were repeated")
    within_noise: int | None = Field(
        description="schedules whose error is at most twice the noise; null without repeats"
    )
    figures: list[AgreementFigure] = Field(description="pooled; p99 from 1,000 requests on")
    sentence: str


class EmulatedRegime(_Part):
    """What the emulated tier of one regime rests on."""

    regime: str
    calibrated: bool
    why: str | None = Field(description="why there is no emulated tier; null: there is one")
    warnings: list[str] = Field(description="arrivals outside the calibrated load, missing seeds")
    agreement: Agreement | None = Field(description="null: no real replay to compare with")


class PolicyResult(_Part):
    """Everything about one policy in one regime on one tier."""

    tier: str
    regime: str
    policy: str
    claimed: bool
    verdict: Word | None = Field(description="null: not claimed before the run, so described only")
    would_be: Word | None = Field(description="the verdict if every open gate passed")
    sentence: str
    gates: list[GateResult]
    open_gates: list[str] = Field(description="names of the gates that were not computed")
    gain: Gain | None
    blocks: list[PolicyBlock] | list[OverlapBlock]
    claim: Claim | None = Field(description="test of a gain; null without draws or not claimed")
    harm: Claim | None = Field(description="the mirrored test, its own Holm family")
    spacing: Spacing | None = Field(description="null where the tier does not carry it")
    decomposition: list[Decomposition]
    settle: Settle | None
    caveat: str | None = Field(
        description="on the emulator tier: how far it is off on real replays; else null"
    )


class VerdictDocument(_Part):
    """The whole of verdict.json."""

    version: int
    run: str
    answer: str = Field(description="one sentence")
    claims: list[str] = Field(description="declared before any run")
    family: dict[str, int] = Field(description="tier -> hypotheses under Holm")
    seeds: dict[str, list[int]] = Field(description="role -> seeds")
    protocol: dict[str, float] = Field(description="the values that the verdicts rest on")
    thresholds_s: dict[str, float] = Field(description="regime -> SLO threshold, seconds")
    emulated: list[EmulatedRegime] = Field(description="what the emulated tier rests on")
    verdicts: list[PolicyResult] = Field(description="claimed policies, strongest tier first")
    described: list[PolicyResult] = Field(description="the others: no verdict")
