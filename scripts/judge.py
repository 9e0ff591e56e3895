"""Score rows of all blocks -> the verdict document."""

import pandas as pd

from safesync.job import job
from safesync.protocol.causality import causality
from safesync.protocol.verdict import judge
from safesync.tables import read_document, write_document
from safesync.tables.overlap import OVERLAP
from safesync.tables.scores import SCORES

params, found = snakemake.params, snakemake.input
with job("judge", snakemake.log[0]) as say:
    thresholds = [read_document(path, ("regime", "threshold_s")) for path in found.thresholds]
    verdict = judge(
        pd.concat([SCORES.read(path) for path in found.scores], ignore_index=True),
        params.protocol,
        params.claims,
        thresholds_s={document["regime"]: document["threshold_s"] for document in thresholds},
        horizon_s=params.horizon_s,
        replay_s=params.replay_s,
        baselines=params.baselines,
        seeds=params.seeds,
        overlap=pd.concat([OVERLAP.read(path) for path in found.overlap], ignore_index=True),
        given_gates=[causality(read_document(path, ("policy", "blocks"))) for path in found.audits],
    )
    say(verdict["answer"])
    write_document(snakemake.output.verdict, verdict)
