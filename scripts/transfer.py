"""Probes and matched-random replays of a regime, and the model -> gate 2, effect-size transfer."""

from safesync.emulator import Trace, Windows, simulate
from safesync.job import job
from safesync.protocol.calibrated import read_calibrated
from safesync.protocol.evidence import Rules
from safesync.protocol.transfer import effects, paired, transfer, transfer_document
from safesync.tables import read_document, write_document
from safesync.tables.arrivals import ARRIVALS
from safesync.tables.merges import MERGES
from safesync.tables.requests import REQUESTS

params, found, regime = snakemake.params, snakemake.input, snakemake.wildcards.regime
with job("transfer", snakemake.log[0]) as say:
    model = read_calibrated(found.model, regime=regime, settings=params.settings)
    metric = read_document(found.threshold, ("metric",))["metric"]
    replays = zip(
        [*found.arrivals, *found.drawn_arrivals],
        [*found.nosync, *found.drawn_nosync],
        [*found.requests, *found.drawn_requests],
        [*found.merges, *found.drawn_merges],
        strict=True,
    )
    pairs = []
    for arrivals_path, nosync_path, requests_path, merges_path in replays:
        nosync, requests = REQUESTS.read(nosync_path), REQUESTS.read(requests_path)
        merges = MERGES.read(merges_path).sort_values("start_s")
        predicted = [None, None]
        if model.calibrated:
            trace = Trace.from_rows(ARRIVALS.read(arrivals_path))
            planned = Windows.planned(merges["planned_s"].to_numpy(), params.merge_s)
            predicted = [
                simulate(trace, windows, model.model).to_requests()
                for windows in (planned, Windows.none())
            ]
        windows = merges[["start_s", "end_s"]].itertuples(index=False, name=None)
        pairs.append(paired(requests, nosync, list(windows), metric, *predicted))
    seen = effects(pairs, Rules().interval_level)
    gate = transfer(
        seen,
        delta=params.delta,
        tolerance=params.tolerance,
        **({} if model.calibrated else {"why_unpredicted": model.why}),
    )
    say(gate.sentence)
    write_document(snakemake.output.transfer, transfer_document(regime, gate, seen))
