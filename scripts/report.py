"""The verdict and every table behind it -> one self-contained page."""

import pandas as pd
import yaml

from safesync.job import job
from safesync.report.page import build
from safesync.report.replay import Replay
from safesync.tables import read_document
from safesync.tables.merges import MERGES
from safesync.tables.requests import REQUESTS
from safesync.tables.schedule import SCHEDULE
from safesync.tables.scores import SCORES
from safesync.tables.telemetry import TELEMETRY

params, found = snakemake.params, snakemake.input
with job("report", snakemake.log[0]):
    replays, warnings = [], []
    for place, (regime, seed, role, policy, draw) in enumerate(params.replays):
        schedule, facts = SCHEDULE.read_with_metadata(found.schedules[place])
        schedule = schedule[schedule["draw"] == draw]
        requests = REQUESTS.read(found.requests[place])
        replays.append(
            Replay(
                tier="vllm",
                regime=regime,
                seed=seed,
                role=role,
                policy="matched_random" if facts["policy"] == "matched_random" else policy,
                draw=draw,
                budget=len(schedule),
                requests=requests.drop(columns=["chunk_s", "chunk_tokens"]),
                merges=MERGES.read(found.merges[place]),
                telemetry=TELEMETRY.read(found.telemetry[place]),
                schedule=schedule,
                manifest=read_document(found.manifests[place], ("figures",)),
            )
        )
        if draw == 0 and policy not in ("nosync", "probe"):
            warnings += [f"{policy}, {regime}, seed {seed}: {one}" for one in facts["warnings"]]
    documents = [read_document(path, ("regime",)) for path in found.thresholds]
    build(
        snakemake.output.page,
        verdict=read_document(found.verdict),
        scores=pd.concat([SCORES.read(path) for path in found.scores], ignore_index=True),
        replays=replays,
        thresholds={document["regime"]: document for document in documents},
        merge_s=params.config["merge"]["merge_s"],
        merge_tolerance_s=params.config["merge"]["end_tolerance_s"],
        config_text=yaml.safe_dump(params.config, sort_keys=False),
        warnings=warnings,
    )
