"""How far emulated latencies are from measured ones of the same requests."""

from __future__ import annotations

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


class LatencyError(BaseModel):
    """One figure of a latency, measured and emulated."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metric: str = Field(description="e2e or ttft.")
    figure: str = Field(description="mean, or a percentile by nearest rank.")
    measured_s: float = Field(description="Measured, s.")
    emulated_s: float = Field(description="Emulated, s.")

    @property
    def relative(self) -> float:
        """Signed error as a share of the measured figure; positive: emulated too slow."""
        return self.emulated_s / self.measured_s - 1.0


class Agreement(BaseModel):
    """Measured against emulated, over the requests that succeeded in the measurement."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests: int = Field(description="Requests compared.")
    lost: int = Field(description="Requests left out because the measured one did not succeed.")
    errors: tuple[LatencyError, ...] = Field(description="By metric and figure.")
    mean_absolute_e2e_s: float = Field(description="Mean absolute error of one request's e2e, s.")

    def error(self, metric: str, figure: str) -> LatencyError:
        """Return the error of one figure, such as ("e2e", "p95")."""
        return next(e for e in self.errors if (e.metric, e.figure) == (metric, figure))


def agreement(measured: pd.DataFrame, emulated: pd.DataFrame) -> Agreement:
    """Compare two REQUESTS tables, paired by `request_id`.

    ValueError: no measured request succeeded, or the emulated table lacks one that did.
    """
    ok = measured[measured["status"] == "ok"].set_index("request_id")
    if ok.empty:
        raise ValueError("no measured request succeeded; there is nothing to compare.")
    unknown = ok.index.difference(pd.Index(emulated["request_id"]))
    if len(unknown):
        raise ValueError(
            f"request {unknown[0]} was measured but not emulated; expected the same arrivals."
        )
    twin = emulated.set_index("request_id").loc[ok.index]
    errors = []
    for metric, column in (("e2e", "done_s"), ("ttft", "first_token_s")):
        real = (ok[column] - ok["arrival_s"]).to_numpy()
        ours = (twin[column] - twin["arrival_s"]).to_numpy()
        errors.append(_error(metric, "mean", real.mean(), ours.mean()))
        for figure, quantile in QUANTILES.items():
            pair = np.quantile([real, ours], quantile, axis=1, method="inverted_cdf")
            errors.append(_error(metric, figure, *pair))
        if metric == "e2e":
            absolute_s = float(np.abs(real - ours).mean())
    return Agreement(
        requests=len(ok),
        lost=len(measured) - len(ok),
        errors=tuple(errors),
        mean_absolute_e2e_s=absolute_s,
    )


def _error(metric: str, figure: str, measured: float, emulated: float) -> LatencyError:
    return LatencyError(
        metric=metric, figure=figure, measured_s=float(measured), emulated_s=float(emulated)
    )
