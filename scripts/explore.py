"""Emulated rows of the tune seeds -> a table of every policy's gain, to iterate with."""

from pathlib import Path

import pandas as pd

from safesync.job import job
from safesync.protocol.explore import explored
from safesync.tables.atomic import replacing
from safesync.tables.scores import SCORES

params, found = snakemake.params, snakemake.input
with job("explore", snakemake.log[0]) as say:
    parts = [SCORES.read(path) for path in [found.controls, *found.scores]]
    scores = pd.concat(parts, ignore_index=True)
    table = explored(scores, params.policies, params.seeds["tune"])
    if table.empty:
        raise ValueError(
            "no regime is calibrated, so nothing can be emulated; the logs of 'calibrate' say why"
        )
    shown = table.to_string(index=False, float_format=lambda value: f"{value:.2f}")
    for line in shown.splitlines():
        say(line)
    with replacing(Path(snakemake.output.table)) as temporary:
        temporary.write_text(shown + "\n", encoding="utf-8")
