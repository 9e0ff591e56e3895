"""Score rows of all blocks -> the verdict document."""

import pandas as pd

from safesync.job import job
from safesync.protocol.causality import causality
from safesync.protocol.parity import training_parity
from safesync.protocol.transfer import transfer_gate
from safesync.protocol.verdict import judge
from safesync.tables import read_document, write_document
from safesync.tables.overlap import OVERLAP
from safesync.tables.scores import SCORES
from safesync.tables.training import TRAINING

params, found = snakemake.params, snakemake.input


def emulated_regime(model_path, agreement_path, facts):
    """Return what the emulated tier of a regime rests on."""
    model = read_document(model_path, ("regime", "calibrated"))
    regime = model["regime"]
    agreement = read_document(agreement_path, ("agreement", "warnings"))
    warnings = [warning for one in facts for warning in one["warnings"].get(regime, [])]
    return {
        "regime": regime,
        "calibrated": model["calibrated"],
        "why": model.get("why"),
        "warnings": list(dict.fromkeys([*warnings, *agreement["warnings"]])),
        "agreement": agreement["agreement"],
    }


with job("judge", snakemake.log[0]) as say:
    thresholds = [read_document(path, ("regime", "threshold_s")) for path in found.thresholds]
    trained = [TRAINING.read_with_metadata(path)[1] for path in found.trainings]
    emulated = [SCORES.read_with_metadata(path) for path in found.emulated]
    verdict = judge(
        pd.concat(
            [
                *(SCORES.read(path) for path in found.scores),
                *(rows for rows, _ in emulated),
            ],
            ignore_index=True,
        ),
        params.protocol,
        params.claims,
        thresholds_s={document["regime"]: document["threshold_s"] for document in thresholds},
        horizon_s=params.horizon_s,
        replay_s=params.replay_s,
        baselines=params.baselines,
        seeds=params.seeds,
        overlap=pd.concat([OVERLAP.read(path) for path in found.overlap], ignore_index=True),
        given_gates=[
            *(causality(read_document(path, ("policy", "blocks"))) for path in found.audits),
            *(transfer_gate(read_document(path, ("regime", "gate"))) for path in found.transfers),
            *(
                training_parity(
                    claim,
                    regime,
                    trained,
                    margin=params.parity_margin,
                    alpha=params.protocol["alpha"],
                )
                for regime in params.regimes
                for claim in params.claims
            ),
        ],
        emulated=[
            emulated_regime(model_path, agreement_path, [facts for _, facts in emulated])
            for model_path, agreement_path in zip(found.models, found.agreements, strict=True)
        ],
    )
    say(verdict["answer"])
    write_document(snakemake.output.verdict, verdict)
