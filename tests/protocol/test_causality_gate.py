from safesync.protocol.causality import causality


def audit(passed, seed=1):
    return {
        "regime": "bursty",
        "seed": seed,
        "passed": passed,
        "cuts_s": [1.0, 2.0],
        "sentence": "wa: the decision at 3 s changed (merge).",
    }


def test_all_blocks_must_pass():
    scope, gate = causality({"policy": "wa", "blocks": [audit(True, 1), audit(True, 2)]})
    assert gate.passed is True
    assert gate.sentence.startswith("At 4 cut times, ")
    assert scope.covers("vllm", "bursty", "wa")
    assert not scope.covers("vllm", "bursty", "other")


def test_one_block_that_looked_ahead_refuses():
    _, gate = causality({"policy": "wa", "blocks": [audit(True, 1), audit(False, 2)]})
    assert gate.passed is False
    assert gate.refuses
    assert gate.figure == 1
    assert gate.sentence == "bursty, seed 2: wa: the decision at 3 s changed (merge)."


def test_the_figure_is_the_number_of_blocks_that_failed():
    for failures in range(3):
        audits = [audit(seed >= failures, seed) for seed in range(3)]
        _, gate = causality({"policy": "wa", "blocks": audits})
        assert (gate.figure, gate.limit, gate.passed) == (failures, 0, failures == 0)
        assert gate.applies


def test_an_oracle_has_nothing_to_hide():
    _, gate = causality({"policy": "wa_offline", "blocks": []})
    assert gate.passed is None
    assert not gate.applies
