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
    assert "4 cuts" in gate.sentence
    assert scope.covers("vllm", "bursty", "wa")
    assert not scope.covers("vllm", "bursty", "other")


def test_one_block_that_looked_ahead_refuses():
    _, gate = causality({"policy": "wa", "blocks": [audit(True, 1), audit(False, 2)]})
    assert gate.passed is False
    assert gate.refuses
    assert gate.figure == 1
    assert gate.sentence == "bursty, seed 2: wa: the decision at 3 s changed (merge)."


def test_an_oracle_has_nothing_to_hide():
    _, gate = causality({"policy": "wa_offline", "blocks": []})
    assert gate.passed is None
    assert not gate.applies
