"""Gate 6, causality: the audits of a policy's decisions, one per block, as one gate."""

from collections.abc import Mapping

from safesync.protocol.gates import Gate, Scope

NAME = "causality"


def causality(document: Mapping) -> tuple[Scope, Gate]:
    """Return the gate of one policy, and the verdicts that it belongs to (all of that policy).

    ``document``: ``policy`` (id) and ``blocks``, the audits of the judged blocks (``passed``,
    ``cuts_s``, ``sentence``, ``regime``, ``seed``); no block for a policy that is not deployable,
    which has nothing to hide. The figure is the number of blocks that failed, its limit 0.
    """
    scope = Scope(policy=document["policy"])
    audits = document["blocks"]
    if not audits:
        return scope, Gate(
            NAME,
            None,
            None,
            None,
            "Not deployable: it says itself that it sees the future.",
            applies=False,
        )
    failed = [audit for audit in audits if not audit["passed"]]
    cuts = sum(len(audit["cuts_s"]) for audit in audits)
    sentence = (
        f"{failed[0]['regime']}, seed {failed[0]['seed']}: {failed[0]['sentence']}"
        if failed
        else f"At {cuts} cut times, replacing all that followed changed no earlier decision."
    )
    return scope, Gate(NAME, not failed, len(failed), 0, sentence)
