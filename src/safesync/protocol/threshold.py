"""The SLO threshold of a regime, fixed before any policy is replayed, as a document."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from safesync.protocol.percentiles import percentile
from safesync.protocol.scores import metric_s


def fixed_threshold(regime: str, metric: str, threshold_s: float) -> dict:
    """Return the threshold document of a threshold that the config states, seconds."""
    return {
        "regime": regime,
        "metric": metric,
        "threshold_s": float(threshold_s),
        "source": "config",
        "sentence": f"{metric} at most {threshold_s:g} s, as the config states.",
    }


def auto_threshold(
    regime: str,
    metric: str,
    nosync_requests: Mapping[int, pd.DataFrame],
    *,
    quantile: float,
    multiple: float,
) -> dict:
    """Return the threshold document: ``multiple`` x ``quantile`` of the calibration captures.

    ``nosync_requests``: seed -> REQUESTS of that calibration seed's nosync capture. The quantile
    (nearest rank) is over the requests of all seeds together, a failure counting as +infinity.
    Raises ValueError when there is no request, or when so many failed that it is infinite.
    """
    seeds = sorted(int(seed) for seed in nosync_requests)
    pooled = [metric_s(rows, metric) for rows in nosync_requests.values()]
    values = np.concatenate(pooled) if pooled else np.empty(0)
    values = values[~np.isnan(values)]
    if not values.size:
        raise ValueError(f"regime '{regime}': no request in the nosync capture of seeds {seeds}")
    level = percentile(values, quantile)
    if not np.isfinite(level):
        raise ValueError(
            f"regime '{regime}': the {quantile:g} quantile of {metric} in the nosync capture of "
            f"seeds {seeds} is infinite because {int(np.isinf(values).sum())} of {values.size} "
            "requests failed; no threshold follows from that"
        )
    threshold_s = multiple * level
    return {
        "regime": regime,
        "metric": metric,
        "threshold_s": threshold_s,
        "source": "auto",
        "quantile": quantile,
        "quantile_s": level,
        "multiple": multiple,
        "seeds": seeds,
        "requests": int(values.size),
        "sentence": (
            f"{metric} at most {threshold_s:.3g} s: {multiple:g} x the {quantile:g} quantile "
            f"({level:.3g} s) of {values.size} requests without merges, calibration seeds "
            f"{', '.join(map(str, seeds))}."
        ),
    }
