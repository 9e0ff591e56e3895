"""Two runs at once: the second is refused while it would write what the first writes."""

import os
import shutil

import pytest
from workflow.measuring import NOSYNC, QUICK, reached
from workflow.project import wait_until

from safesync.company import CompanyError, hold


def test_a_second_run_in_the_same_folder_is_refused_and_the_first_goes_on(project):
    config = project.config("small", **QUICK | {"horizon_s": 30})
    first = reached(project, config, manifest=NOSYNC)
    status, said = project.run(NOSYNC, config=config)
    assert status != 0
    assert "Directory cannot be locked" in said
    assert "--unlock" in said
    assert "Traceback" not in said, said
    wait_until(lambda: first.poll() is not None, 90, "the first run's end")
    assert first.returncode == 0, project.said()
    assert (project.folder / NOSYNC).exists()
    wait_until(lambda: not project.processes(), 10, "no process left")


def test_a_run_whose_lock_another_one_removed_still_has_its_results_to_itself(project):
    config = project.config("small", **QUICK | {"horizon_s": 30})
    first = reached(project, config, manifest=NOSYNC)
    # what Snakemake does when another run of the same working folder ends
    shutil.rmtree(project.folder / ".snakemake/locks")
    status, said = project.run(NOSYNC, config=config)
    assert status != 0
    assert "results/small: another run is writing there; wait until it ends" in said
    assert "Traceback" not in said, said
    wait_until(lambda: first.poll() is not None, 90, "the first run's end")
    assert first.returncode == 0, project.said()
    assert (project.folder / NOSYNC).exists()


def test_a_folder_is_held_until_it_is_let_go(tmp_path):
    descriptor = hold(tmp_path / "results/run")
    other = hold(tmp_path / "results/other")
    with pytest.raises(CompanyError, match="results/run: another run is writing there"):
        hold(tmp_path / "results/run")
    os.close(descriptor)
    os.close(hold(tmp_path / "results/run"))
    os.close(other)
