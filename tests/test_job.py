import pytest

from safesync.job import in_tenths, job
from safesync.tables import TableError


def failing(tmp_path, error) -> tuple[int, str]:
    log = tmp_path / "logs" / "a.log"
    with pytest.raises(SystemExit) as left, job("judge", str(log)) as say:
        say("at work")
        raise error
    return left.value.code, log.read_text()


@pytest.mark.parametrize("error", [TableError("a: no such file"), OSError("a: no such file")])
def test_an_error_for_the_user_is_one_sentence(tmp_path, capsys, error):
    code, log = failing(tmp_path, error)
    assert code == 1
    assert log == "judge: at work\njudge: a: no such file\n"
    assert capsys.readouterr().err == log


def test_a_fault_of_ours_keeps_its_traceback_in_the_log(tmp_path, capsys):
    code, log = failing(tmp_path, KeyError("gone"))
    assert code == 1
    assert "KeyError: 'gone'" in log
    assert "Traceback" not in capsys.readouterr().err


def test_an_interrupt_is_one_sentence_too(tmp_path, capsys):
    code, log = failing(tmp_path, KeyboardInterrupt())
    assert code == 130
    assert log == "judge: at work\njudge: interrupted; nothing of it is taken as complete\n"
    assert capsys.readouterr().err == log


def test_a_full_disk_does_not_hide_what_is_said(capsys):
    with pytest.raises(SystemExit), job("judge", "/dev/full"):
        raise OSError("No space left on device")
    assert capsys.readouterr().err == "judge: No space left on device\n"


def test_a_signal_is_not_taken_for_an_error(tmp_path):
    with pytest.raises(SystemExit) as left, job("measure", str(tmp_path / "a.log")):
        raise SystemExit(143)
    assert left.value.code == 143


def test_progress_is_told_once_a_tenth():
    told = []
    progress = in_tenths(told.append)
    for share in (0.0, 0.05, 0.1, 0.15, 0.31, 0.3, 0.99, 1.0):
        progress(share)
    assert told == [1, 3, 9, 10]
