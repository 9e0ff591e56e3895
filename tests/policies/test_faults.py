"""What goes wrong in a policy's own code is said of that policy, with the place."""

from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

from safesync.policies import Decision, Policy, load_policy, load_policy_file
from safesync.policies.causality import audit
from safesync.policies.replay import decide_schedule

FILE = """from safesync.policies import Decision, Policy


def helper():
    {helper}


class Mine(Policy):
    name = "mine"

    def begin(self, block):
        super().begin(block)
        {begin}

    def decide(self, observation):
        if observation.gap >= 144:
            {decide}
        return Decision(False)


POLICY = Mine
"""


def run(tmp_path, corridor, trace, **code):
    """Schedule the policy of a file: line 5 is ``helper``, 13 ``begin``, 17 ``decide``."""
    path = tmp_path / "my_policy.py"
    path.write_text(FILE.format(**{"helper": "pass", "begin": "pass", "decide": "pass"} | code))
    decide_schedule(load_policy_file(path)(), corridor, trace)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            {"decide": "{}['load']"},
            r"decide failed at 9 s with KeyError: 'load' \(.*my_policy\.py:17\)",
        ),
        ({"decide": "raise SystemExit(3)"}, r"at 9 s with SystemExit: 3 \(.*my_policy\.py:17\)"),
        ({"decide": "assert False"}, r"at 9 s with AssertionError \(.*:17\)"),
        ({"decide": "raise ValueError('a\\n b')"}, r"with ValueError: a b \(.*:17\)"),
        ({"decide": "helper()", "helper": "1 / 0"}, r"ZeroDivisionError: .*my_policy\.py:5\)"),
        # raised in another file, for a fault of this one
        ({"decide": "int.fromhex"}, r"AttributeError: .*my_policy\.py:17\)"),
        ({"decide": "__import__('json').loads('{')"}, r"JSONDecodeError: .*my_policy\.py:17\)"),
        ({"begin": "block.trace.loss"}, r"begin failed with AttributeError: .*\.py:13\)"),
        ({"begin": "raise SystemExit"}, r"begin failed with SystemExit \(.*\.py:13\)"),
        (
            {"decide": "return Decision('no')"},
            r"merge must be True or False, .*'no' \(str\).*:17\)",
        ),
        ({"decide": "return Decision(None)"}, r"True or False, found None \(.*:17\)"),
        ({"decide": "return Decision(1)"}, r"True or False, found 1 \(int\) \(.*:17\)"),
        ({"decide": "return Decision(True, 'high')"}, r"score must be a number or None, .*'high'"),
        ({"decide": "return Decision(True, True)"}, r"score must be a number or None, .*bool"),
        ({"decide": "return Decision(True, 10**999)"}, r"OverflowError: .*:17\)"),
        ({"decide": "return Decision(True, 1.0, None)"}, r"reason must be text, found None"),
        (
            {"decide": "return 42"},
            r"decide answered 42 \(int\) at 9 s, expected a Decision .*:15\)",
        ),
        ({"decide": "return"}, r"decide answered None at 9 s, expected a Decision \(.*:15\)"),
    ],
)
def test_a_users_fault_is_one_sentence_with_its_place(tmp_path, corridor, flat, code, said):
    with pytest.raises(ValueError, match=f"^mine: .*{said}") as error:
        run(tmp_path, corridor, flat(), **code)
    assert "\n" not in str(error.value)


def test_an_interrupt_passes(tmp_path, corridor, flat):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, corridor, flat(), decide="raise KeyboardInterrupt")


def test_a_wrong_signature_is_the_policys_fault(corridor, flat):
    class Short(Policy):
        name: ClassVar[str] = "short"

        def decide(self):
            return Decision(False)

    with pytest.raises(ValueError, match=r"^short: decide failed at 8 s with TypeError: .*faults"):
        decide_schedule(Short(), corridor, flat())


def test_a_built_in_refusal_keeps_its_text(corridor, flat):
    fixed_h = load_policy("fixed_h")
    with pytest.raises(ValueError, match="h = 100 lies outside") as error:
        decide_schedule(fixed_h(fixed_h.Parameters(h=100)), corridor, flat())
    assert str(error.value) == "fixed_h: h = 100 lies outside the corridor 128..512"


@pytest.mark.parametrize("answer", [42, None])
def test_the_audit_says_so_too(corridor, flat, answer):
    class Odd(Policy):
        name: ClassVar[str] = "odd"

        def decide(self, observation):
            return answer

    with pytest.raises(ValueError, match=f"^odd: decide answered {answer}"):
        audit(Odd, corridor, flat())


def test_numpy_answers_become_pythons():
    decision = Decision(np.bool_(True), np.float32(0.5))
    assert decision == Decision(True, 0.5)
    assert (type(decision.merge), type(decision.score)) == (bool, float)
    for score in (np.float64(2), np.int64(2), 2, Fraction(2)):
        assert type(Decision(False, score).score) is float
    assert Decision(False).score is None


# --- parameters that can never run, refused without a block


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("fixed_h", {"h": 127}, "fixed_h: h = 127 lies outside the corridor 128..512"),
        ("fixed_h", {"h": 513}, "fixed_h: h = 513 lies outside the corridor 128..512"),
        ("pressure_gate", {"h": 127}, "pressure_gate: h = 127 lies outside the corridor 128..512"),
        ("random_deferral", {"h": 127}, "random_deferral: h = 127 lies below h_min = 128"),
        *[
            (
                name,
                {"max_staleness_s": 7.9},
                f"{name}: max_staleness_s = 7.9 s can't be kept; h_min = 128 steps of 0.0625 s "
                "last 8 s",
            )
            for name in ("wa_diloco", "wa_forecast", "wa_horizon", "wa_mmpp")
        ],
    ],
)
def test_check_refuses_what_begin_refuses(corridor, flat, name, parameters, said):
    policy = load_policy(name)
    chosen = policy.Parameters(**parameters)
    with pytest.raises(ValueError) as checked:
        policy.check(chosen, 128, 512, 0.0625)
    with pytest.raises(ValueError) as begun:
        decide_schedule(policy(chosen), corridor, flat())
    assert str(checked.value) == str(begun.value) == said


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("fixed_h", {"h": 128}),
        ("fixed_h", {"h": 512}),
        ("random_deferral", {"h": 900}),
        ("wa_mmpp", {"max_staleness_s": 8.0}),
        ("wa_diloco", {}),
        ("adaptive_load", {}),
        ("nosync", {}),
    ],
)
def test_check_lets_the_others_pass(name, parameters):
    policy = load_policy(name)
    assert policy.check(policy.Parameters(**parameters), 128, 512, 0.0625) is None


def test_a_check_of_ones_own_holds_in_the_engine(corridor, flat):
    class Picky(load_policy("wa_diloco")):
        name: ClassVar[str] = "picky"

        @classmethod
        def check(cls, parameters, h_min, h_max, step_s):
            raise ValueError(f"picky: {h_min} {h_max} {step_s}")

    with pytest.raises(ValueError, match=r"begin failed with ValueError: picky: 128 512 0\.0625 "):
        decide_schedule(Picky(), corridor, flat())
