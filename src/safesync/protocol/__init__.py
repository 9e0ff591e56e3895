"""The protocol: from the tables of replays to what may be claimed of a policy.

- `scores.score`: one replay -> one row of SCORES; `validity.Limits` what a measurement may be off.
- `threshold.auto_threshold`, `threshold.fixed_threshold`: the SLO threshold of a regime.
- `overlap.overlap_rows`: one block's schedules -> rows of OVERLAP, exact and without replays.
- `verdict.judge`: all score and overlap rows -> the verdict document, whose schema is `document`.
- `gates.Gate`, `gates.Scope`: carry in the gates that other stages compute.
- `statistics`: the tests over blocks; `power`: what a design can be expected to find.
- `published`: the figures of a published study, through the same functions.

Nothing is imported here, so that a rule depends on the modules that it names and no others.
"""
