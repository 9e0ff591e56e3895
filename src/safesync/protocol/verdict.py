"""From score rows to verdicts: one per claimed policy, regime and tier."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import get_args

import pandas as pd

from safesync.protocol import document as doc
from safesync.protocol import gates as g
from safesync.protocol.blocks import NOSYNC, check_unique, is_policy
from safesync.protocol.evidence import (
    TIERS,
    Case,
    Rules,
    Study,
    decompose,
    describe_block,
    gather,
    offered_10min,
    pairs_of,
)
from safesync.protocol.overlap import check_unique_blocks
from safesync.protocol.settle import settle
from safesync.protocol.statistics import Interval, PValue, holm
from safesync.tables.overlap import OVERLAP

_NAMES = ("tier", "regime", "policy", "control_of")
_NAMED = 3  # a sentence names so many cases, above that it counts them


def judge(
    scores: pd.DataFrame,
    protocol: Mapping,
    claims: Sequence[str],
    *,
    thresholds_s: Mapping[str, float],
    horizon_s: float,
    replay_s: float,
    baselines: Sequence[str] = (),
    given_gates: Sequence[tuple[g.Scope, g.Gate]] = (),
    seeds: Mapping[str, Sequence[int]] | None = None,
    overlap: pd.DataFrame | None = None,
    emulated: Sequence[Mapping] = (),
) -> dict:
    """Return the verdict document (``document.VerdictDocument`` as plain JSON values).

    ``scores``: rows of SCORES; only those with role ``judge`` are evidence, and an invalid
    calibration capture fails the gate "measurement valid" of its regime: one without merges on the
    real tier, any on the emulated one. ``protocol``: values of ``Rules``. ``claims``: policy ids
    declared before any run; each is tested in every regime of every tier, and Holm's family is all
    of those of one tier. ``thresholds_s``: regime -> SLO threshold, seconds (the lateness limit is
    a share of it). ``horizon_s``: length of a trace.
    ``replay_s``: wall time of one replay, seconds, for "what would settle it". ``baselines``:
    fixed-period policies that the effect is decomposed against. ``given_gates``: gates that other
    stages computed (transfer, causality, training parity, matched spacing), each with the
    verdicts it belongs to; they take the place of "not computed". ``seeds``: role -> seeds,
    printed in the document (default: those in the tables). ``overlap``: rows of OVERLAP
    (``overlap.overlap_rows``), the evidence of the tier "overlap"; None for a study without it.
    ``emulated``: per regime the values of ``document.EmulatedRegime``; its agreement goes with
    every result of the tier "emulator", whose rows stand in ``scores``.

    On the overlap tier a rate is the requests that the windows meet as a share of all requests of
    the block, so gains, ``min_gain`` and intervals are in points as elsewhere. Its control is the
    exact null, its p over blocks the place of the summed cost in the convolution of the blocks'
    nulls, and its gate "matched spacing" is computed here, by the same rule and with a Holm family
    of its own; gates that a replay would need are marked as not applicable.

    Raises ValueError for duplicate rows, an unknown tier or a regime without a threshold.
    """
    rules = Rules(**protocol)
    overlap = OVERLAP.empty() if overlap is None else overlap
    check_unique(scores)
    check_unique_blocks(overlap)
    scores = scores.astype(dict.fromkeys(_NAMES, "category"))  # a thousand draws per block
    regimes_emulated = [doc.EmulatedRegime(**regime) for regime in emulated]
    judged = scores[scores["role"] == "judge"]
    counted = overlap[overlap["role"] == "judge"]
    pairs = pairs_of(judged, counted)
    without = sorted(set(judged["regime"]) - set(thresholds_s))
    if without:
        raise ValueError(f"no SLO threshold for regime {without}")
    study = Study(
        judged,
        counted,
        rules,
        dict(thresholds_s),
        horizon_s,
        replay_s,
        tuple(baselines),
        calibration=scores[scores["role"] == "calibration"],
        caveats={found.regime: _caveat(found) for found in regimes_emulated},
    )

    verdicts, family = [], {}
    for tier in [tier for tier in TIERS if any(tier == t for t, _ in pairs)]:
        regimes = [regime for t, regime in pairs if t == tier]
        cases = [gather(study, tier, regime, claim) for regime in regimes for claim in claims]
        family[tier] = len(cases)
        verdicts += _decide_family(study, cases, given_gates)
    described = [
        _describe(study, gather(study, tier, regime, policy))
        for tier, regime in pairs
        for policy in _described_policies(study, tier, regime, claims)
    ]
    return doc.VerdictDocument(
        version=doc.VERSION,
        run=next(iter([*scores["run"], *overlap["run"]]), ""),
        answer=_answer(verdicts),
        claims=list(claims),
        family=family,
        seeds=_seeds(scores, overlap) if seeds is None else _integers(seeds),
        protocol=rules.model_dump(),
        thresholds_s=dict(thresholds_s),
        emulated=regimes_emulated,
        verdicts=verdicts,
        described=described,
    ).model_dump(mode="json")


def _caveat(found: doc.EmulatedRegime) -> str:
    if found.agreement is None:
        return "No real replay of this run shows how far the emulator is off."
    return found.agreement.sentence


def _described_policies(study: Study, tier: str, regime: str, claims: Sequence[str]) -> list[str]:
    rows = study.overlap
    if tier != g.OVERLAP_TIER:
        rows = study.judged[study.judged["tier"] == tier]
    here = rows[rows["regime"] == regime]
    return sorted(filter(is_policy, set(here["policy"]) - set(claims)))


def _decide_family(
    study: Study, cases: Sequence[Case], given: Sequence[tuple[g.Scope, g.Gate]]
) -> list[doc.PolicyResult]:
    """Adjust gains, harms and spacing gains over the declared family, then decide every case."""
    better, worse, spacing = (
        _family([getattr(case, side) for case in cases]) for side in ("better", "worse", "spacing")
    )
    return [
        _decide(study, *tested, len(cases), given)
        for tested in zip(cases, better, worse, spacing, strict=True)
    ]


def _family(tests: Sequence[tuple[PValue, PValue] | None]) -> list[doc.Claim | None]:
    """Return the claims under Holm; a case without a test still counts in the family."""
    tested = [_p_claim(parts) for parts in tests if parts]
    adjusted = iter(holm(tested, len(tests)))
    return [_claim(parts, next(adjusted)) if parts else None for parts in tests]


def _p_claim(parts: tuple[PValue, PValue]) -> float:
    return max(part.p for part in parts)


def _claim(parts: tuple[PValue, PValue], p_holm: float) -> doc.Claim:
    randomization, sign_flip = (
        doc.TestResult(p=t.p, smallest=t.smallest, arrangements=t.arrangements, exact=t.exact)
        for t in parts
    )
    return doc.Claim(
        p_claim=_p_claim(parts),
        p_holm=p_holm,
        smallest=max(part.smallest for part in parts),
        randomization=randomization,
        sign_flip=sign_flip,
    )


def _decide(
    study: Study,
    case: Case,
    claim: doc.Claim | None,
    harm: doc.Claim | None,
    spacing: doc.Claim | None,
    family: int,
    given: Sequence[tuple[g.Scope, g.Gate]],
) -> doc.PolicyResult:
    gates = _gates(study, case, claim, spacing, family, given)
    failed = [gate for gate in gates if gate.refuses and gate.passed is False]
    open_gates = [gate.name for gate in gates if gate.applies and gate.passed is None]
    unmet = [gate for gate in gates if not gate.refuses and gate.passed is False]
    would_be = _word(study.rules, case, gates, harm)
    verdict, settled_by = would_be, None
    if failed:
        verdict = would_be = "REFUSED"
        sentence = f"gate '{failed[0].name}' failed. {failed[0].sentence}"
    elif would_be == "EARNED":
        sentence = _size(case, study, claim)
        if open_gates:
            verdict = "PROVISIONAL"
            sentence = f"would be EARNED. {sentence} Not checked: {', '.join(open_gates)}."
    elif would_be == "HARMFUL":
        sentence = _size(case, study, harm)
    elif would_be == "TIED":
        margin = g.points(study.rules.min_gain)
        sentence = (
            f"{_points(case.interval)} lies inside \u00b1{margin} of its {_control(case)}."
            f"{_floor(study.rules, case)}"
        )
    else:
        settled_by = settle(study, case, family)
        if [gate.name for gate in unmet] == ["matched spacing"]:
            sentence = (
                f"a spacing gain, not awareness: {_points(case.interval)}. {unmet[0].sentence}"
            )
        else:
            resolved = any(gate.name == "resolution" and gate.passed for gate in gates)
            sentence = _undecided(study, case, claim, resolved, settled_by)
            sentence += _floor(study.rules, case)
    return _result(
        study,
        case,
        claimed=True,
        verdict=verdict,
        would_be=would_be,
        sentence=sentence,
        gates=[doc.GateResult(**asdict(gate)) for gate in gates],
        open_gates=open_gates,
        claim=claim,
        harm=harm,
        spacing=spacing and doc.Spacing(points=100 * case.spacing_gain, test=spacing),
        settle=settled_by,
    )


def _gates(
    study: Study,
    case: Case,
    claim: doc.Claim | None,
    spacing: doc.Claim | None,
    family: int,
    given: Sequence[tuple[g.Scope, g.Gate]],
) -> list[g.Gate]:
    """Return the gates of one verdict, in the protocol's order."""
    rules, blocks = study.rules, case.blocks
    elsewhere = {gate.name: gate for gate in g.later_gates(case.tier)}
    elsewhere |= {
        gate.name: gate
        for scope, gate in given
        if scope.covers(case.tier, case.regime, case.policy)
    }
    found = []
    if case.tier == g.OVERLAP_TIER:
        found += [*g.without_replays(), g.exact_budget(len(blocks))] if blocks else []
    elif blocks:
        captures = study.calibration
        mine = (captures["tier"] == g.REAL_TIER) & (captures["regime"] == case.regime)
        if case.tier == g.REAL_TIER:
            mine &= captures["policy"] == NOSYNC
        found += [
            g.measurement_valid(
                blocks,
                lateness_limit_s=rules.lateness_limit * study.thresholds_s[case.regime],
                loop_lag_limit_s=rules.loop_lag_limit_s,
                calibration=captures[mine],
            ),
            g.same_fingerprint(blocks, noise=rules.anchor_noise),
            g.load_match(blocks),
            g.budget_match(blocks, tolerance=rules.merge_seconds_tolerance),
        ]
    if claim is not None:
        level = rules.alpha / family
        found += [
            g.resolution(len(blocks), claim.smallest, level=level, min_blocks=rules.min_blocks),
            g.envelope(claim.p_holm, alpha=rules.alpha),
            g.minimum_gain(case.gain, min_gain=rules.min_gain),
        ]
    if spacing is not None:
        found.append(
            g.matched_spacing(
                spacing.p_holm,
                case.spacing_gain,
                smallest_p=spacing.smallest,
                alpha=rules.alpha,
            )
        )
    decided = {gate.name for gate in found}
    found += [gate for name, gate in elsewhere.items() if name not in decided]
    order = (
        "measurement valid",
        "fingerprint",
        "effect-size transfer",
        "no-sync load match",
        "budget match",
        "resolution",
        "envelope",
        "gain",
        "matched spacing",
        "causality",
        "training parity",
    )
    places = {name: place for place, name in enumerate(order)}
    return sorted(found, key=lambda gate: places.get(gate.name, len(order)))


def _word(rules: Rules, case: Case, gates: Sequence[g.Gate], harm: doc.Claim | None) -> doc.Word:
    """Return the verdict that the evidence gives when every gate that refuses is passed."""
    if case.interval is None:
        return "INCONCLUSIVE"
    enough = len(case.blocks) >= rules.min_blocks
    sure = g.envelope(harm.p_holm, alpha=rules.alpha)
    large = g.minimum_gain(-case.gain, min_gain=rules.min_gain)
    if enough and sure.passed and large.passed:
        return "HARMFUL"
    evidence = [gate for gate in gates if not gate.refuses]
    if all(gate.passed is not False for gate in evidence):
        return "EARNED"
    low, high = case.interval.low, case.interval.high
    if low is not None and low > -rules.min_gain and high < rules.min_gain:
        return "TIED"
    return "INCONCLUSIVE"


def _points(interval: Interval) -> str:
    """Return the gain in words: +1.23 points (90 % interval +0.50 to +1.90)."""
    said = f"{-interval.mean * 100:+z.2f} points"
    if interval.low is None:
        return f"a gain of {said}"
    return (
        f"a gain of {said} ({interval.level:.0%} interval {-interval.high * 100:+z.2f} to "
        f"{-interval.low * 100:+z.2f})"
    )


def _size(case: Case, study: Study, claim: doc.Claim) -> str:
    saved = abs(case.gain) * offered_10min(case, study.horizon_s)
    what = "fewer" if case.gain > 0 else "more"
    counted = "overlapped requests" if case.tier == g.OVERLAP_TIER else "violations"
    return (
        f"{abs(case.gain) * 100:.2f} points {what} {counted} than its {_control(case)} in "
        f"{g.count(len(case.blocks), 'block')}, p {claim.p_holm:.2g} after Holm (smallest "
        f"attainable {claim.smallest:.2g}): about {saved:.0f} requests per sidecar and ten minutes."
    )


def _floor(rules: Rules, case: Case) -> str:
    """Return a sentence where there was too little to gain, or blocks hold nothing; else ''."""
    if case.interval is None:
        return ""
    if case.room < rules.min_gain:
        margin, room = g.points(rules.min_gain), 100 * case.room
        if case.tier == g.OVERLAP_TIER:
            why = f"the best placement there is gains {room:.2f} points over chance"
        else:
            why = f"its matched-random draws violate in {room:.2f} % of all requests"
        return f" No policy could have gained {margin}: {why}."
    if not case.alike:
        return ""
    where = (
        f"{case.alike} of {len(case.blocks)} blocks" if len(case.blocks) > 1 else "its one block"
    )
    what = "placement" if case.draws is None else "draw"
    return f" In {where} every {what} comes out as the policy does, so nothing can be told there."


def _control(case: Case) -> str:
    exact = case.tier == g.OVERLAP_TIER
    return "placements by chance, all of them" if exact else "matched-random placements"


def _undecided(
    study: Study, case: Case, claim: doc.Claim | None, resolved: bool, settled_by: doc.Settle | None
) -> str:
    if not case.blocks:
        what = "schedule" if case.tier == g.OVERLAP_TIER else "replay"
        return f"No judged {what} of this policy exists."
    if claim is None:
        return "No matched-random draw of its own budget exists to compare with."
    rules = study.rules
    control = "exact null" if case.draws is None else g.count(case.draws, "draw")
    design = f"{g.count(len(case.blocks), 'block')}, {control}"
    if settled_by is None:
        return f"{design}: all placements of this budget meet as many requests, so none is better."
    if not resolved:
        return (
            f"{design}: smallest attainable p = {claim.smallest:.2g}, INCONCLUSIVE; "
            f"{g.count(settled_by.resolving_blocks, 'block')} would allow "
            f"{settled_by.resolving_p:.2g}."
        )
    if claim.p_holm <= rules.alpha:
        why = f"less than the {g.points(rules.min_gain)} that a claim needs"
    else:
        why = "neither told from chance nor shown to be as small as the margin"
    return (
        f"{design}: {_points(case.interval)}, p {claim.p_holm:.2g} after Holm (smallest attainable "
        f"{claim.smallest:.2g}), is {why}."
    )


def _describe(study: Study, case: Case) -> doc.PolicyResult:
    if case.interval is None:
        sentence = "Baseline without draws of its own budget: no verdict."
    else:
        sentence = f"Not claimed before the run: no verdict; {_points(case.interval)}."
    return _result(
        study,
        case,
        claimed=False,
        verdict=None,
        would_be=None,
        sentence=sentence,
        gates=[],
        open_gates=[],
        claim=None,
        harm=None,
        spacing=None,
        settle=None,
    )


def _result(study: Study, case: Case, *, sentence: str, **fields) -> doc.PolicyResult:
    gain = None
    if case.interval is not None:
        offered = offered_10min(case, study.horizon_s)
        worst, best = (
            None if end is None else -end for end in (case.interval.high, case.interval.low)
        )
        low, high = case.bootstrap or (None, None)
        gain = doc.Gain(
            rate=case.gain,
            points=case.gain * 100,
            low_points=None if worst is None else worst * 100,
            high_points=None if best is None else best * 100,
            level=case.interval.level,
            note=case.interval.note,
            bootstrap_low_points=None if high is None else -high * 100,
            bootstrap_high_points=None if low is None else -low * 100,
            run_sd_points=None if case.run_sd is None else 100 * case.run_sd,
            requests_per_sidecar_10min=case.gain * offered,
            low_requests_per_sidecar_10min=None if worst is None else worst * offered,
            high_requests_per_sidecar_10min=None if best is None else best * offered,
        )
    return doc.PolicyResult(
        tier=case.tier,
        regime=case.regime,
        policy=case.policy,
        sentence=sentence[0].upper() + sentence[1:],
        gain=gain,
        blocks=[describe_block(block) for block in case.blocks],
        decomposition=decompose(study, case),
        caveat=study.caveats.get(case.regime) if case.tier == g.EMULATED_TIER else None,
        **fields,
    )


def _answer(verdicts: Sequence[doc.PolicyResult]) -> str:
    """Return the one sentence: the strongest tier's claims, by verdict, and what others count."""
    if not verdicts:
        return "No claim was judged: the scores hold no judge replay, or no policy was claimed."
    tiers: dict[str, list[doc.PolicyResult]] = {}
    for result in verdicts:
        tiers.setdefault(result.tier, []).append(result)
    (tier, here), *computed = tiers.items()
    earned = _earned(here)
    if not earned:
        opening = f"No claim is earned on the {tier} tier"
    else:
        opening = f"{earned} of {g.count(len(here), 'claim')} earned on the {tier} tier"
    said = []
    for word in get_args(doc.Word):
        cases = [f"{result.policy} in {result.regime}" for result in here if result.verdict == word]
        if len(cases) > _NAMED:
            said.append(f"{len(cases)} are {word}")
        elif cases:
            said.append(f"{' and '.join(cases)} {'is' if len(cases) == 1 else 'are'} {word}")
    elsewhere = [f"{_earned(those)} of {len(those)} on {other}" for other, those in computed]
    beside = ""
    if any(_earned(those) for _, those in computed):
        beside = f"; earned on computed tiers: {', '.join(elsewhere)}"
    elif computed:
        beside = f"; nor is any on the computed tiers ({', '.join(other for other, _ in computed)})"
    return f"{opening}: {'; '.join(said)}{beside}."


def _earned(results: Sequence[doc.PolicyResult]) -> int:
    return sum(result.verdict == "EARNED" for result in results)


def _seeds(*tables: pd.DataFrame) -> dict[str, list[int]]:
    rows = pd.concat([table[["role", "seed"]] for table in tables], ignore_index=True)
    return _integers({role: sorted(set(of["seed"])) for role, of in rows.groupby("role")})


def _integers(seeds: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    return {str(role): [int(seed) for seed in values] for role, values in seeds.items()}
