"""Calibration captures of a regime -> the emulator's model, or the reason why there is none."""

from safesync.emulator import Limits, Probe, calibrate
from safesync.job import job
from safesync.protocol.calibrated import (
    IDENTITY,
    Calibrated,
    Uncalibrated,
    cache_limits,
    load_of,
    mean_rate,
    one_sidecar,
    preemptions,
)
from safesync.protocol.provenance import check_settings
from safesync.tables import read_document, write_document
from safesync.tables.merges import MERGES
from safesync.tables.requests import REQUESTS
from safesync.tables.telemetry import TELEMETRY

params, found, regime = snakemake.params, snakemake.input, snakemake.wildcards.regime
with job("calibrate", snakemake.log[0]) as say:
    fingerprints, limits = [], params.limits
    manifests = dict.fromkeys(found.manifests, params.nosync_settings)
    manifests |= dict.fromkeys(found.probe_manifests, params.settings)
    for path, settings in manifests.items():
        manifest = read_document(path, ("fingerprint", "config", "horizon_s", "kv_cache"))
        check_settings(path, manifest, settings)
        fingerprints.append(manifest["fingerprint"])
        limits = limits | cache_limits(manifest["kv_cache"])
    nosync = [REQUESTS.read(path) for path in found.requests]
    telemetry = [TELEMETRY.read(path) for path in found.telemetry]
    probe_telemetry = [TELEMETRY.read(path) for path in found.probe_telemetry]
    probes = [
        Probe(REQUESTS.read(requests), MERGES.read(merges))
        for requests, merges in zip(found.probe_requests, found.probe_merges, strict=True)
    ]
    try:
        if not nosync:
            raise ValueError("seeds.calibration is empty, so there is no capture to calibrate on.")
        fingerprint = one_sidecar(fingerprints)
        fitted = calibrate(
            nosync,
            probes,
            Limits(**limits),
            preemptions=preemptions([*telemetry, *probe_telemetry]),
        )
    except ValueError as error:
        document = Uncalibrated(regime=regime, why=str(error))
        say(f"not calibrated: {error}")
    else:
        captures = [*nosync, *(probe.requests for probe in probes)]
        document = Calibrated(
            regime=regime,
            fingerprint=fingerprint,
            settings={name: params.settings[name] for name in IDENTITY},
            model=fitted.model,
            fit=fitted.fit,
            load=load_of(captures, params.settings["merge"]["merge_s"]),
            network_bytes_per_s=mean_rate(telemetry, "network_bytes"),
            disk_written_bytes_per_s=mean_rate(telemetry, "disk_written_bytes"),
        )
        step, phases = fitted.model.step, fitted.model.contention
        say(
            f"step {step.base_s * 1e3:.1f} ms + {step.per_decode_s * 1e3:.2f} ms per sequence, "
            f"times {', '.join(f'{phase.factor:.2f}' for phase in phases)} inside a merge; "
            f"{fitted.fit.steps} steps, {fitted.fit.windows} windows"
        )
    write_document(snakemake.output.model, document.model_dump(mode="json"))
