"""Locust's own totals; times in ms from the schedule, percentiles in its buckets."""

from collections import Counter

from locust.stats import RequestStats, calculate_response_time_percentile

_QUANTILES = (0.5, 0.95, 0.99)


def locust_figures(stats: RequestStats) -> dict:
    """Return the figures of one process."""
    total = stats.total
    return {
        "num_requests": total.num_requests,
        "num_failures": total.num_failures,
        "min_response_time_ms": total.min_response_time,
        "avg_response_time_ms": total.avg_response_time,
        "max_response_time_ms": total.max_response_time,
        "bucketed_percentiles_ms": _percentiles(total.response_times),
        "bucketed_counts": {str(at_ms): count for at_ms, count in total.response_times.items()},
        "errors": {str(item.error): item.occurrences for item in stats.errors.values()},
    }


def merged_figures(parts: list[dict]) -> dict:
    """Return the figures of all processes from those of each; every one had a request."""
    requests = sum(part["num_requests"] for part in parts)
    buckets, errors = Counter(), Counter()
    for part in parts:
        buckets.update({float(at_ms): count for at_ms, count in part["bucketed_counts"].items()})
        errors.update(part["errors"])
    return {
        "num_requests": requests,
        "num_failures": sum(part["num_failures"] for part in parts),
        "min_response_time_ms": min(part["min_response_time_ms"] for part in parts),
        "avg_response_time_ms": sum(
            part["avg_response_time_ms"] * part["num_requests"] / requests for part in parts
        ),
        "max_response_time_ms": max(part["max_response_time_ms"] for part in parts),
        "bucketed_percentiles_ms": _percentiles(buckets),
        "bucketed_counts": {str(at_ms): count for at_ms, count in buckets.items()},
        "errors": dict(errors),
    }


def _percentiles(buckets: dict[float, int]) -> dict[str, float]:
    requests = sum(buckets.values())
    return {str(q): calculate_response_time_percentile(buckets, requests, q) for q in _QUANTILES}
