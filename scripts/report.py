"""The verdict and every table behind it -> one self-contained page."""

import pandas as pd
import yaml

from safesync.job import job
from safesync.protocol.blocks import CONTROL
from safesync.report.page import build
from safesync.report.replay import Replay
from safesync.tables import read_document
from safesync.tables.merges import MERGES
from safesync.tables.overlap import OVERLAP
from safesync.tables.requests import REQUESTS
from safesync.tables.schedule import SCHEDULE
from safesync.tables.scores import SCORES
from safesync.tables.telemetry import TELEMETRY

params, found = snakemake.params, snakemake.input
with job("report", snakemake.log[0]):
    tables = zip(
        params.replays,
        [*found.requests, *found.drawn_requests],
        [*found.merges, *found.drawn_merges],
        [*found.telemetry, *found.drawn_telemetry],
        [*found.manifests, *found.drawn_manifests],
        [*found.schedules, *found.drawn_schedules],
        strict=True,
    )
    replays, warnings = [], []
    for (regime, seed, role, policy, draw), requests, merges, telemetry, manifest, path in tables:
        schedule, facts = SCHEDULE.read_with_metadata(path)
        schedule = schedule[schedule["draw"] == draw]
        replays.append(
            Replay(
                tier="vllm",
                regime=regime,
                seed=seed,
                role=role,
                policy=CONTROL if facts["policy"] == CONTROL else policy,
                draw=draw,
                budget=len(schedule),
                requests=REQUESTS.read(requests).drop(columns=["chunk_s", "chunk_tokens"]),
                merges=MERGES.read(merges),
                telemetry=TELEMETRY.read(telemetry),
                schedule=schedule,
                manifest=read_document(manifest, ("figures",)),
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
        overlap=pd.concat([OVERLAP.read(path) for path in found.overlap], ignore_index=True),
    )
