import pytest
from pydantic import ValidationError

from safesync.learners.settings import Plan, Training
from safesync.tables import write_document
from safesync.tables.plans import PlanError, read_plan

PLAN = {
    **Training().model_dump(),
    "seed": 1,
    "slot": 0,
    "slots": 8,
    "steps": 30,
    "decay_steps": 30,
    "merges": [10, 20],
    "folder": "folder",
}


def test_a_merge_closes_the_training_once():
    assert Plan(**PLAN).closed_merges == (10, 20, 30)
    assert Plan(**PLAN | {"merges": [10, 30]}).closed_merges == (10, 30)
    assert Plan(**PLAN | {"merges": []}).closed_merges == (30,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"merges": [0, 10]}, "merges must rise from at least one inner step"),
        ({"merges": [10, 10]}, "merges must rise"),
        ({"merges": [10, 31]}, "merges reach step 31, behind steps, 30"),
        ({"slot": 8}, "slot is 8, expected below slots, 8"),
        ({"heads": 3}, "heads 3 do not divide width 32"),
        ({"outer_momentum": 1.0}, "less than 1"),
        ({"fragments": 0}, "fragments\n.*greater than or equal to 1"),
        ({"delay_steps": -1}, "delay_steps\n.*greater than or equal to 0"),
        ({"colour": "red"}, "Extra inputs"),
    ],
)
def test_what_cannot_be_trained_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        Plan(**PLAN | changes)


def test_a_plan_is_read_back_and_a_bad_one_named(tmp_path):
    write_document(tmp_path / "plan.json", PLAN)
    assert read_plan(tmp_path / "plan.json", Plan) == Plan(**PLAN)
    write_document(tmp_path / "bad.json", PLAN | {"batch": 0})
    with pytest.raises(PlanError, match=r"bad\.json: batch: .*greater than or equal to 1"):
        read_plan(tmp_path / "bad.json", Plan)
    with pytest.raises(PlanError, match=r"absent\.json: cannot be read"):
        read_plan(tmp_path / "absent.json", Plan)
