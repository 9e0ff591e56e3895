"""Model id -> local model folder and the checksums that measurements depend on."""

from pathlib import Path

from safesync.job import job
from safesync.sidecar.model import prepare_model
from safesync.tables import write_document

with job("prepare_model", snakemake.log[0]) as say:
    model = snakemake.params.model
    say(f"preparing {model['id']} ({model['source']})")
    checksums = prepare_model(model, Path(snakemake.params.folder))
    write_document(snakemake.output.checksums, {"model": model, "sha256": checksums})
