"""A run whose "measurements" are replays of a known model, written as the stages would have."""

import numpy as np
import pandas as pd

from safesync import config as settings
from safesync.emulator import Contention, EngineModel, Limits, StepTime, Trace, Windows, simulate
from safesync.placement import Corridor
from safesync.policies.controls import control_facts, matched_random, probe
from safesync.policies.schedule import schedule_facts, schedule_rows
from safesync.tables import write_document
from safesync.tables.arrivals import ARRIVALS, arrivals_sha256
from safesync.tables.learners import LEARNERS
from safesync.tables.merges import MERGES
from safesync.tables.requests import REQUESTS
from safesync.tables.schedule import SCHEDULE
from safesync.tables.telemetry import TELEMETRY
from safesync.workload.generate import generate
from workflow.project import Project

FIXED = {"id": "fixed_h_64", "policy": "fixed_h", "params": {"h": 64}}
PLANTED = {
    "run": "planted",
    "horizon_s": 60,
    "merge": {"merge_s": 4, "ranks": 2},
    "corridor": {"h_min": 32, "h_max": 128, "step_s": 0.125},
    "slo": {"threshold_s": 0.9},
    "seeds": {"calibration": [11], "tune": [12], "judge": [23]},
    "regimes": {"bursty": {"arrivals": {"family": "poisson", "rate_rps": 4}}},
    "policies": [
        FIXED,
        {"id": "random_deferral", "policy": "random_deferral", "measure": False},
    ],
    "claims": ["fixed_h_64"],
    "controls": {"draws": 2, "pool": 5, "repeats": {"fixed_h_64": 2}},
    "emulator": {"seeds": [101, 102], "draws": 20},
}
TRUTH = EngineModel(
    limits=Limits(max_num_seqs=64, max_model_len=1024),
    step=StepTime(base_s=0.012, per_decode_s=0.001, per_prefill_token_s=0.0002),
    contention=(Contention(factor=2.0),),
    client_overhead_s=0.004,
)
BUDGET = 5  # of fixed_h_64: 5 merges of 4 s after 8 s of steps each


class Run:
    """Tables of a run as measurements would leave them, written in the order of the stages."""

    def __init__(self, project: Project, values: dict):
        self.config = settings.load(values)
        self.folder = project.folder / "results" / self.config.run
        bounds = self.config.corridor.model_dump()
        self.corridor = Corridor(**bounds, merge_s=4.0, horizon_s=60.0)

    def place(self, table: str, seed: int, *more: str) -> str:
        name = "manifest.json" if table == "manifest" else "part.parquet"
        path = self.folder.joinpath(table, "regime=bursty", f"seed={seed}", *more, name)
        return str(path)

    def arrivals(self, seed: int) -> pd.DataFrame:
        regime = self.config.regimes["bursty"]
        rows, facts = generate(regime.arrivals, regime.tokens, 60.0, "bursty", seed)
        ARRIVALS.write(self.place("arrivals", seed), rows, facts)
        return rows

    def schedule(self, seed: int, policy: str, rows: pd.DataFrame, facts: dict) -> None:
        SCHEDULE.write(self.place("schedule", seed, f"policy={policy}"), rows, facts)

    def measure(
        self, seed: int, policy: str, draw: int, rows: pd.DataFrame, starts_s, lag_s: float = 0.0
    ) -> None:
        starts_s = np.asarray(starts_s, dtype=float)
        where = (f"policy={policy}", f"draw={draw}")
        windows = Windows.planned(starts_s, 4.0)
        replay = simulate(Trace.from_rows(rows), windows, TRUTH, chunks=True)
        REQUESTS.write(self.place("requests", seed, *where), replay.to_requests())
        merges = pd.DataFrame({name: np.zeros(len(starts_s)) for name in MERGES.schema.names})
        merges = merges.assign(merge=range(len(starts_s)), planned_s=starts_s, start_s=starts_s)
        merges = merges.assign(end_s=starts_s + 4.0, rounds=1, reduced_bytes=1)
        types = {f.name: f.type.to_pandas_dtype() for f in MERGES.schema}
        MERGES.write(self.place("merges", seed, *where), merges.astype(types))
        t_s = np.arange(0, 60, 0.2)
        telemetry = pd.DataFrame({name: np.zeros(len(t_s)) for name in TELEMETRY.schema.names})
        telemetry = telemetry.assign(
            t_s=t_s,
            network_bytes=np.arange(len(t_s), dtype=np.int64) * 200,
            disk_written_bytes=np.zeros(len(t_s), dtype=np.int64),
        )
        TELEMETRY.write(self.place("telemetry", seed, *where), telemetry)
        plain = self.config.model_dump(mode="json")
        manifest = {
            "run": self.config.run,
            "regime": "bursty",
            "seed": seed,
            "policy": policy,
            "draw": draw,
            "fingerprint": "planted",
            "kv_cache": {"block_size": 128, "blocks": 728},
            "horizon_s": 60.0,
            "config": {
                "sidecar": plain["sidecar"],
                "client": plain["client"],
                "merge": plain["merge"]
                | {"ranks": 2, "style": "blocking", "bandwidth_bytes_per_s": None, "passes": None},
                "background": {"load": None, "training": None},
                "model": plain["model"]["name"],
            },
            "arrivals_sha256": arrivals_sha256(rows),
            "figures": {"loop_lag_p99_s": lag_s, "prefix_hits": 0.0},
        }
        write_document(self.place("manifest", seed, *where), manifest)

    def learners(self, seed: int) -> None:
        rows = pd.DataFrame({"island": np.int32(0), "step": np.arange(1, 481, dtype=np.int64)})
        rows = rows.assign(loss=1.0, tokens=rows["step"] * 8, step_s=0.125)
        LEARNERS.write(self.folder / f"learners/seed={seed}/part.parquet", rows)


def planted(project: Project, values: dict) -> Run:
    """Return a run with all its measurements."""
    run = Run(project, values)
    for seed in run.config.seeds.calibration:
        rows = run.arrivals(seed)
        windows = probe(run.corridor, "bursty", seed)
        run.schedule(seed, "nosync", SCHEDULE.empty(), {"policy": "nosync"})
        run.schedule(seed, "probe", windows, {"policy": "probe"})
        run.measure(seed, "nosync", 0, rows, [])
        run.measure(seed, "probe", 0, rows, windows["start_s"])
    rows = run.arrivals(23)
    run.schedule(23, "nosync", SCHEDULE.empty(), {"policy": "nosync"})
    run.learners(23)
    run.measure(23, "nosync", 0, rows, [])
    gaps = np.full((2, BUDGET), 64)
    fixed = schedule_rows(run.corridor, gaps, "policy")
    facts = schedule_facts(run.corridor, BUDGET) | {"warnings": []}
    for policy in ("fixed_h_64", "random_deferral"):
        run.schedule(23, policy, fixed, facts | {"policy": policy})
    write_document(
        run.folder / "budgets/regime=bursty/seed=23.json",
        {"claims": {"fixed_h_64": BUDGET}, "budgets": [BUDGET]},
    )
    control = f"matched_random_{BUDGET}"
    drawn = matched_random(run.corridor, BUDGET, 5, "bursty", 23)
    run.schedule(
        23, control, drawn, control_facts("matched_random", run.corridor, BUDGET, "bursty", 23)
    )
    starts_s = run.corridor.starts(gaps[0])
    for draw in range(2):
        run.measure(23, "fixed_h_64", draw, rows, starts_s)
        starts_s_drawn = drawn[drawn["draw"] == draw]["start_s"]
        run.measure(23, control, draw, rows, starts_s_drawn, lag_s=9.0 * draw)  # draw 1: invalid
    return run
