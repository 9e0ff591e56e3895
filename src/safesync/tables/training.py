"""training: loss of every island by inner step, of a run on one schedule.

Facts: ``regime``, ``seed``, ``policy`` and ``draw`` of the schedule; ``training_seed``, of initial
parameters and data; ``merge_steps``, inner steps done at each merge of the schedule and at the one
that closes the training; ``heldout``, steps and losses of the merged model on held-out data, at
the start and after every merge, where its last update is applied; ``final_heldout_loss``, the last
of them, nats per token; ``style`` of the policy's merges, and what it makes of them: the number of
``fragments`` and ``delay_steps``, inner steps until a fragment's update is applied.
"""

import pyarrow as pa

from safesync.tables.base import Table

TRAINING = Table(
    "training",
    pa.schema(
        [
            ("island", pa.int32()),
            ("step", pa.int64()),
            ("loss", pa.float64()),  # of the island's own batch, nats per token
        ]
    ),
)
