"""The page's tables as plain rows: validity, load match, replays, overlap, machines."""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from safesync.protocol.blocks import NOSYNC
from safesync.protocol.gates import LOAD
from safesync.protocol.validity import Limits, merge_errors_s
from safesync.report.replay import Replay

MAX_REPLAY_ROWS = 400
_ORACLE = "wa_offline"  # the policy that knows the whole trace
_TRAINS = ("none here; progress is that of a training run of its own", "inner steps")


def validity(
    scores: pd.DataFrame, replays: Sequence[Replay], limits: Limits, merge_s: float
) -> dict:
    """Return the validity strip of one (tier, regime).

    ``checks``: name, figure and limit in seconds (figure None: not measured; inf: never sent) and
    whether it passed, the worst replay each. ``invalid``: replay and reason. ``raised``: in how
    many of ``measured`` measurements the client's priority was raised. ``telemetry``: samples
    due, samples without an answer of the server, requests that it preempted.
    """
    errors = [merge_errors_s(replay.merges, merge_s, replay.manifest) for replay in replays]
    checks = [
        _check("client lateness, p99", scores["lateness_p99_s"].max(), limits.lateness_s),
        _check("client loop lag, p99", scores["loop_lag_p99_s"].max(), limits.loop_lag_s),
        _check(
            "merge start off plan",
            max((e["started"] for e in errors), default=np.nan),
            limits.merge_tolerance_s,
        ),
        _check(
            "merge end off plan",
            max((e["ended"] for e in errors), default=np.nan),
            limits.merge_tolerance_s,
        ),
    ]
    invalid = scores[~scores["valid"].astype(bool)]
    told = [
        r.manifest["client_nice_granted"] for r in replays if "client_nice_granted" in r.manifest
    ]
    return {
        "checks": checks,
        "replays": len(scores),
        "invalid": [
            {
                "replay": f"{row.policy} draw {row.draw}, seed {row.seed}",
                "reason": row.invalid_reason or "no reason was recorded",
            }
            for row in invalid.itertuples()
        ],
        "raised": sum(bool(granted) for granted in told),
        "measured": len(told),
        "telemetry": _telemetry([r.telemetry for r in replays if r.telemetry is not None]),
    }


def _telemetry(tables: Sequence[pd.DataFrame]) -> dict:
    preempted = [rows["preemptions_total"].dropna() for rows in tables]
    return {
        "samples": sum(len(rows) for rows in tables),
        "missing": int(sum(rows["running"].isna().sum() for rows in tables)),
        "preemptions": int(
            sum(total.iloc[-1] - total.iloc[0] for total in preempted if len(total))
        ),
    }


def _check(name: str, figure: float, limit: float) -> dict:
    known = not np.isnan(figure)
    return {
        "name": name,
        "figure": float(figure) if known else None,
        "limit": limit,
        "passed": bool(figure <= limit) if known else None,
        "share": float(min(1.0, figure / limit)) if known else 0.0,
    }


def load_match(scores: pd.DataFrame) -> list[dict]:
    """Return a row per block: what its capture carried, and which replays carried another load.

    ``scores``: of one (tier, regime). ``seed``, ``role``; ``capture``: the SCORES row of its first
    nosync draw, None without one; ``replays``: the others; ``other``: those of them that differ
    from the capture in anything of ``LOAD``, and in what.
    """
    found = []
    for seed, rows in scores.groupby("seed", sort=True):
        ordered = rows.sort_values("draw").to_dict("records")
        capture = next((row for row in ordered if row["policy"] == NOSYNC), None)
        others = [row for row in ordered if row is not capture]
        found.append(
            {
                "seed": int(seed),
                "role": ordered[0]["role"],
                "capture": capture,
                "replays": len(others),
                "other": [said for row in others if (said := _other_load(row, capture))],
            }
        )
    return found


def _other_load(row: Mapping, capture: Mapping | None) -> str:
    """Return in what a replay differs from its block's capture; empty for in nothing."""
    if capture is None:
        return ""
    said = ", ".join(what for column, what in LOAD if row[column] != capture[column])
    return f"{row['policy']} draw {row['draw']}, seed {row['seed']}: {said}" if said else ""


def set_aside(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that no figure draws: invalid, or of a block with an invalid capture.

    ``scores``: of one regime. A block's capture is the first draw of nosync.
    """
    valid = scores["valid"].astype(bool)
    captures = scores[scores["policy"] == NOSYNC].sort_values("draw")
    first = captures.drop_duplicates(["tier", "seed"])
    bad = first[~first["valid"].astype(bool)]
    blocks = set(zip(bad["tier"], bad["seed"], strict=True))
    places = zip(scores["tier"], scores["seed"], strict=True)
    inside = np.array([place in blocks for place in places], dtype=bool)
    return scores[~valid | inside]


def replay_rows(scores: pd.DataFrame, policies: Sequence[str]) -> tuple[list[dict], int]:
    """Return the score rows as the page lists them, and how many were left out."""
    places = {policy: place for place, policy in enumerate(policies)}
    ordered = scores.assign(_place=scores["policy"].map(places).fillna(len(places))).sort_values(
        ["_place", "policy", "budget", "seed", "draw"]
    )
    rows = ordered.head(MAX_REPLAY_ROWS).drop(columns="_place").to_dict("records")
    return rows, max(0, len(ordered) - MAX_REPLAY_ROWS)


def overlap_rows(overlap: pd.DataFrame, policies: Sequence[str]) -> list[dict]:
    """Return the rows of OVERLAP as the page lists them: by policy as listed, then by seed."""
    places = {policy: place for place, policy in enumerate(policies)}
    hidden = [name for name in overlap.columns if name.endswith(("_values", "_probabilities"))]
    spacing = [
        float(np.dot(row.spacing_values, row.spacing_probabilities)) for row in overlap.itertuples()
    ]
    return (
        overlap.assign(_place=overlap["policy"].map(places), spacing_mean=spacing)
        .sort_values(["_place", "seed"])
        .drop(columns=["_place", *hidden])
        .to_dict("records")
    )


def alike_policies(overlap: pd.DataFrame, policies: Sequence[str]) -> list[list[str]]:
    """Return the groups of policies that are alike in every block, in the order of the page.

    Alike: as many merges, meeting as many requests, with gaps whose orders meet as many.
    """
    figures = ("seed", "budget", "overlap", "spacing_values", "spacing_probabilities")
    groups: dict[str, list[str]] = {}
    for policy in policies:
        rows = overlap[overlap["policy"] == policy].sort_values("seed")
        if len(rows):
            told = rows[list(figures)].to_dict("records")
            groups.setdefault(json.dumps(told, default=lambda values: values.tolist()), []).append(
                policy
            )
    return [group for group in groups.values() if len(group) > 1]


def oracles(overlap: pd.DataFrame) -> set[str]:
    """Return the policies that know the whole trace and meet the fewest requests in every block."""
    rows = overlap[overlap["method"] == _ORACLE]
    worst = rows.groupby("policy")["regret"].max()
    return set(worst.index[worst == 0])


def inert_signals(overlap: pd.DataFrame) -> list[dict]:
    """Return the blocks whose capture holds signals without variance, and which signals."""
    rows = overlap.loc[overlap["inert_signals"] != "", ["seed", "inert_signals"]]
    return rows.drop_duplicates().sort_values("seed").to_dict("records")


def background(section: Mapping) -> str:
    """Return in words what the config lets run beside the sidecar; empty for nothing."""
    absent = ("None", "none")
    return ", ".join(f"{name} {value}" for name, value in _flat(section) if value not in absent)


def setting(replays: Sequence[Replay], horizon_s: float) -> list[tuple[str, str]]:
    """Return in a few words, each with its name, what was measured: model, cores, load, training.

    ``replays``: of all regimes; what their manifests do not tell is left out.
    """
    configs = [r.manifest["config"] for r in replays if "config" in r.manifest]
    models = sorted({config["model"] for config in configs if "model" in config})
    cores = [r.manifest["cores"] for r in replays if r.manifest.get("cores")]
    offered = [len(r.requests) for r in replays if r.policy == NOSYNC and r.role == "judge"]
    trains = [bool(c["background"]["training"]) for c in configs if "background" in c]
    return [
        *([("model served", ", ".join(models))] if models else []),
        *([("cores", _shares(cores[0]))] if cores else []),
        *([("a replay", _replay(offered, horizon_s))] if offered else []),
        *([("training between merges", _TRAINS[any(trains)])] if trains else []),
    ]


def _shares(cores: Mapping[str, Sequence[int]]) -> str:
    """Return how many cores the parts of a measurement have, and whether they share any."""
    sets = {part: set(own) for part, own in cores.items()}
    used = set().union(*sets.values())
    if all(own == used for own in sets.values()):
        return f"{len(used)}, shared by {', '.join(sets)}"
    return ", ".join(f"{part} {len(own)}" for part, own in sets.items())


def _replay(offered: Sequence[int], horizon_s: float) -> str:
    low, high = min(offered), max(offered)
    return f"{low if low == high else f'{low} to {high}'} requests in {horizon_s:g} s"


def machines(replays: Sequence[Replay]) -> list[dict]:
    """Return the distinct settings under which was measured, with how many replays each."""
    found: dict[str, dict] = {}
    for replay in replays:
        if not replay.manifest:
            continue
        facts = {
            name: replay.manifest[name]
            for name in ("versions", "hardware", "cores", "git_commit", "measurement_version")
            if name in replay.manifest
        }
        key = json.dumps([replay.manifest.get("fingerprint"), facts], sort_keys=True)
        machine = found.setdefault(
            key,
            {
                "fingerprint": replay.manifest.get("fingerprint"),
                "facts": _flat(facts),
                "starts": [],
                "replays": 0,
            },
        )
        machine["replays"] += 1
        if replay.manifest.get("start"):
            machine["starts"].append(replay.manifest["start"])
    for machine in found.values():
        starts = sorted(machine.pop("starts"))
        machine["first"], machine["last"] = (starts[0], starts[-1]) if starts else (None, None)
    return list(found.values())


def _flat(facts: Mapping, prefix: str = "") -> list[tuple[str, str]]:
    rows = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{name}: ")
        else:
            said = ", ".join(map(_said, value)) if isinstance(value, list) else _said(value)
            rows.append((f"{prefix}{name}".replace("_", " "), said))
    return rows


def _said(value: object) -> str:
    return f"{value:,.12g}" if isinstance(value, float) else str(value)
