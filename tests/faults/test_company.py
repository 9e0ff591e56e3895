"""Two runs at once: the second is refused while it would write what the first writes."""

from workflow.measuring import NOSYNC, QUICK, reached
from workflow.project import wait_until


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
