import json

import pytest
from sidecar.contend.contention import Contention

from safesync.sidecar.contend.plan import Plan
from safesync.tables.plans import PlanError, read_plan


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bandwidth": 1}, "plan.json: bandwidth: Extra inputs"),
        ({"backend": "mpi"}, "plan.json: backend: .*'gloo' or 'nccl'"),
        ({"merge_s": 0}, "plan.json: merge_s: .*greater than 0"),
        ({"style": "throttled"}, "style is throttled, so bandwidth_bytes_per_s must be a number"),
        ({"style": "overlapped"}, "style is overlapped, so passes must be a number"),
        ({"horizon_s": 0.0}, "plan.json: horizon_s: .*greater than 0"),
        ({"fragment_parameters": 450_001}, "450001, expected at most parameters, 450000"),
        ({"windows": [{"merge": 0, "step": 1}]}, "plan.json: windows.0.start_s: Field required"),
    ],
)
def test_a_wrong_field_is_named(tmp_path, changes, message):
    with pytest.raises(PlanError, match=message):
        read_plan(Contention(tmp_path, **changes).path, Plan)


def test_overlapping_and_unordered_windows_are_refused(tmp_path):
    with pytest.raises(PlanError, match=r"merge 1 starts at 1\.5 s, inside merge 0"):
        read_plan(Contention(tmp_path, starts_s=(1.0, 1.5)).path, Plan)


def test_a_window_that_starts_beyond_the_horizon_is_refused(tmp_path):
    with pytest.raises(PlanError, match=r"merge 0 starts at 9\.0 s, expected before horizon_s, 9"):
        read_plan(Contention(tmp_path, starts_s=(9.0,), horizon_s=9.0).path, Plan)


def test_a_missing_file_and_a_missing_field_are_named(tmp_path):
    with pytest.raises(PlanError, match=r"nowhere\.json"):
        read_plan(tmp_path / "nowhere.json", Plan)
    plan = Contention(tmp_path).plan
    del plan["go"]
    (tmp_path / "short.json").write_text(json.dumps(plan))
    with pytest.raises(PlanError, match=r"short\.json: go: Field required"):
        read_plan(tmp_path / "short.json", Plan)


def test_a_sound_plan_is_read(tmp_path):
    plan = read_plan(Contention(tmp_path, starts_s=(1.0, 2.0)).path, Plan)
    assert [window.start_s for window in plan.windows] == [1.0, 2.0]
    assert plan.timeout_s == 20.0
