"""The verdict and every table behind it -> one self-contained page."""

import pandas as pd
import yaml

from safesync.job import job
from safesync.protocol.blocks import CAPTURES, SPACING, judged_policy
from safesync.protocol.published import read_figures
from safesync.report.figures.envelope import COLUMNS
from safesync.report.merges import MergePlan
from safesync.report.page import build
from safesync.report.replay import Replay
from safesync.report.training import TrainingRun
from safesync.tables import read_document
from safesync.tables.agreement import AGREEMENT
from safesync.tables.arrivals import ARRIVALS
from safesync.tables.merges import MERGES
from safesync.tables.overlap import OVERLAP
from safesync.tables.requests import REQUESTS
from safesync.tables.schedule import SCHEDULE
from safesync.tables.scores import SCORES
from safesync.tables.telemetry import TELEMETRY
from safesync.tables.training import TRAINING

params, found = snakemake.params, snakemake.input


def drawn(path):
    """Return what the page draws of an emulated table: all but its matched spacing."""
    rows = SCORES.read(path)
    return rows.loc[rows["policy"] != SPACING, COLUMNS]


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
                policy=judged_policy(policy),
                draw=draw,
                budget=len(schedule),
                requests=REQUESTS.read(requests).drop(columns=["chunk_s", "chunk_tokens"]),
                merges=MERGES.read(merges),
                telemetry=TELEMETRY.read(telemetry),
                schedule=schedule,
                manifest=read_document(manifest, ("figures",)),
            )
        )
        if draw == 0 and policy not in CAPTURES:
            warnings += [f"{policy}, {regime}, seed {seed}: {one}" for one in facts["warnings"]]
    arrivals = []
    for path in found.arrivals:
        rows, facts = ARRIVALS.read_with_metadata(path)
        arrivals.append(facts | {"requests": len(rows)})
    merge, regimes = params.config["merge"], params.config["regimes"]
    corridor = params.config["corridor"]
    documents = [read_document(path, ("regime",)) for path in found.thresholds]
    trainings = [TRAINING.read_with_metadata(path) for path in found.trainings]
    transfers = [read_document(path, ("regime", "gate", "effects")) for path in found.transfers]
    build(
        snakemake.output.page,
        verdict=read_document(found.verdict),
        scores=pd.concat([SCORES.read(path) for path in found.scores], ignore_index=True),
        replays=replays,
        thresholds={document["regime"]: document for document in documents},
        merges={
            name: MergePlan(
                merge["merge_s"],
                merge["end_tolerance_s"],
                merge["parameters"],
                regime["ranks"] or merge["ranks"],
            )
            for name, regime in regimes.items()
        },
        horizon_s=params.config["horizon_s"],
        gaps_s=tuple(corridor[end] * corridor["step_s"] for end in ("h_min", "h_max")),
        rules=params.policies,
        config_text=yaml.safe_dump(params.config, sort_keys=False),
        warnings=warnings,
        overlap=pd.concat([OVERLAP.read(path) for path in found.overlap], ignore_index=True),
        arrivals=arrivals,
        backgrounds={name: regime["background"] for name, regime in regimes.items()},
        published=read_figures(found.published),
        agreement=pd.concat(map(AGREEMENT.read, found.agreements), ignore_index=True),
        transfers={document["regime"]: document for document in transfers},
        trainings=[TrainingRun(facts, losses) for losses, facts in trainings],
        emulated=pd.concat(drawn(path) for path in found.emulated),
    )
