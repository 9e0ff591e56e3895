"""overlap: one row per policy and block, what its merges meet in the capture without merges."""

import pyarrow as pa

from safesync.tables.base import Table

OVERLAP = Table(
    "overlap",
    pa.schema(
        [
            ("run", pa.string()),
            ("regime", pa.string()),
            ("kind", pa.string()),
            ("seed", pa.int64()),
            ("role", pa.string()),
            ("policy", pa.string()),
            ("method", pa.string()),  # the policy's own name; ids may differ in parameters only
            ("budget", pa.int32()),
            ("freedom", pa.float64()),  # slack beyond the tightest schedule, in merge windows
            ("forced_share", pa.float64()),  # of the merges; null when not recorded
            ("inert_signals", pa.string()),  # comma-separated, empty for none
            ("forecast_error", pa.float64()),  # null without that parameter
            ("requests", pa.int64()),  # in the block
            ("overlap", pa.int64()),  # requests met, summed over the windows
            ("null_mean", pa.float64()),
            ("null_sd", pa.float64()),
            ("p_at_most", pa.float64()),  # share of all placements that meet as few
            ("optimum", pa.int64()),  # fewest that any schedule of this budget meets
            ("regret", pa.int64()),  # overlap - optimum
            # the exact distribution over all placements of the budget
            ("null_values", pa.list_(pa.int64())),
            ("null_probabilities", pa.list_(pa.float64())),
            # the distribution over the orders of the schedule's own gaps
            ("spacing_values", pa.list_(pa.int64())),
            ("spacing_probabilities", pa.list_(pa.float64())),
            ("spacing_orders", pa.int64()),  # how many it holds, the schedule's own among them
            ("spacing_exact", pa.bool_()),  # false: a seeded sample of the orders
        ]
    ),
)
