"""model.json: a calibrated emulator, what it was fitted to, and what it may be used for.

The identity is the settings that the captures were measured with: a model of another sidecar, merge
or regime is refused, and so is a document of another version. Where the captures do not suffice the
document says why instead.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from safesync.emulator import EngineModel, Fit
from safesync.tables import read_document

MODEL_VERSION = 2
_KEPT_BLOCKS = 1  # vLLM keeps one block of its cache back
IDENTITY = ("sidecar", "merge", "model")
# peaks of single traces scatter by chance, and costs are linear in the load
_MARGIN = 1.25


class ModelError(ValueError):
    """A model file cannot be used; the message is one sentence."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Load(_Part):
    """The load of the captures: what the model has seen."""

    window_s: float = Field(gt=0, description="Length over which the peak is taken, s.")
    peak_rps: float = Field(description="Highest rate over any such window, requests/s.")
    prompt_tokens: tuple[int, int] = Field(description="Shortest and longest prompt, tokens.")
    output_tokens: tuple[int, int] = Field(description="Shortest and longest answer, tokens.")

    def outside(self, arrivals: pd.DataFrame) -> list[str]:
        """Return a sentence for each way in which ARRIVALS rows leave this load."""
        found = load_of([arrivals], self.window_s)
        said = []
        if found.peak_rps > _MARGIN * self.peak_rps:
            said.append(
                f"arrivals peak at {found.peak_rps:.3g} requests/s over {self.window_s:g} s, the "
                f"calibrated load at {self.peak_rps:.3g}"
            )
        for what in ("prompt_tokens", "output_tokens"):
            (low, high), (least, most) = getattr(found, what), getattr(self, what)
            if low < least / _MARGIN or high > _MARGIN * most:
                said.append(
                    f"{what.replace('_', ' ')} reach from {low} to {high}, in the calibrated load "
                    f"from {least} to {most}"
                )
        return said


class Calibrated(_Part):
    """A model that may be used."""

    version: int = Field(MODEL_VERSION, description="Version of this document's meaning.")
    calibrated: Literal[True] = True
    regime: str = Field(description="Regime of the captures.")
    fingerprint: str = Field(description="Machine and software of the captures.")
    settings: dict = Field(description="Config sections that the captures were measured with.")
    model: EngineModel
    fit: Fit = Field(description="How well it fits its own captures (in-sample).")
    load: Load
    network_bytes_per_s: float = Field(ge=0, description="Mean of the nosync captures.")
    disk_written_bytes_per_s: float = Field(ge=0, description="Mean of the nosync captures.")


class Uncalibrated(_Part):
    """The reason why there is no model."""

    version: int = Field(MODEL_VERSION, description="Version of this document's meaning.")
    calibrated: Literal[False] = False
    regime: str
    why: str = Field(min_length=1, description="One sentence.")


def one_sidecar(fingerprints: Sequence[str]) -> str:
    """Return the fingerprint that all captures of a calibration carry.

    ValueError, one sentence: they carry several, and a model is that of one sidecar.
    """
    found = sorted(set(fingerprints))
    if len(found) > 1:
        raise ValueError(
            f"the calibration captures carry {len(found)} fingerprints of machine and software "
            f"({', '.join(found)}); expected one, for a model is that of one sidecar."
        )
    return found[0]


def load_of(traces: Sequence[pd.DataFrame], window_s: float) -> Load:
    """Return the load of traces (ARRIVALS or REQUESTS rows) together, by windows of ``window_s``.

    Rows without a known length (a failed request's) do not count for the lengths.
    """
    tokens = pd.concat([rows[["prompt_tokens", "output_tokens"]] for rows in traces]).dropna()
    tokens = tokens[(tokens > 0).all(axis=1)]
    return Load(
        window_s=window_s,
        peak_rps=max(_peak(np.sort(rows["arrival_s"].to_numpy()), window_s) for rows in traces),
        prompt_tokens=_ends(tokens["prompt_tokens"]),
        output_tokens=_ends(tokens["output_tokens"]),
    )


def mean_rate(telemetry: Sequence[pd.DataFrame], counter: str) -> float:
    """Return how fast a counter of TELEMETRY rises on average over captures, per second."""
    ends = [rows.iloc[[0, -1]] for rows in telemetry]
    return float(
        sum(np.ptp(two[counter]) for two in ends) / sum(np.ptp(two["t_s"]) for two in ends)
    )


def preemptions(telemetry: Sequence[pd.DataFrame]) -> int:
    """Return how often the servers preempted a sequence in captures, by TELEMETRY's counter.

    A server that does not tell has preempted none.
    """
    counted = [rows["preemptions_total"].dropna() for rows in telemetry]
    return int(sum(np.ptp(total) for total in counted if len(total)))


def cache_limits(told: Mapping[str, int | None]) -> dict[str, int]:
    """Return the ``Limits`` of the KV cache that a manifest's ``kv_cache`` tells of.

    What the server did not tell is left to the defaults of ``Limits``: memory then never binds.
    """
    limits = {}
    if told["blocks"]:
        limits["kv_blocks"] = told["blocks"] - _KEPT_BLOCKS
    if told["block_size"]:
        limits["block_size"] = told["block_size"]
    return limits


def read_calibrated(
    path: str, *, regime: str, settings: Mapping[str, object]
) -> Calibrated | Uncalibrated:
    """Return the document in ``path``, which must be of this regime and these settings.

    ``settings``: the config sections of ``IDENTITY``. ModelError, one sentence: the document has no
    version or another one, a field is wrong, or the model is that of another regime, sidecar, merge
    or served model. TableError: the file cannot be read, or lacks a field that every version has.
    """
    document = read_document(path, ("calibrated", "regime"))
    version = document.get("version")
    if version != MODEL_VERSION:
        told = "without a version" if version is None else f"of version {version}"
        raise ModelError(
            f"{path}: a model {told}, expected version {MODEL_VERSION}; calibrate again"
        )
    kind = Calibrated if document["calibrated"] else Uncalibrated
    try:
        found = kind.model_validate(document)
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(str(part) for part in fault["loc"])
        raise ModelError(f"{path}: field '{field}': {fault['msg']}; calibrate again") from None
    if found.regime != regime:
        raise ModelError(
            f"{path}: calibrated for regime '{found.regime}', expected '{regime}'; calibrate again"
        )
    if isinstance(found, Calibrated):
        for section in IDENTITY:
            _check_section(path, section, found.settings.get(section), settings[section])
    return found


def _check_section(path: str, section: str, found: object, expected: object) -> None:
    if not isinstance(expected, Mapping) or not isinstance(found, Mapping):
        found, expected = {"": found}, {"": expected}
    for key in sorted({*found, *expected}):
        if found.get(key) != expected.get(key):
            raise ModelError(
                f"{path}: calibrated with {section}.{key}".rstrip(".")
                + f" = {found.get(key)!r}, the config says {expected.get(key)!r}; calibrate again"
            )


def _peak(arrival_s: np.ndarray, window_s: float) -> float:
    ended = np.searchsorted(arrival_s, arrival_s + window_s, side="left")
    return float((ended - np.arange(arrival_s.size)).max(initial=0)) / window_s


def _ends(values: pd.Series) -> tuple[int, int]:
    return int(values.min()), int(values.max())
