import signal
import time
from pathlib import Path

import psutil
import pytest
from sidecar.beside import sleep_until
from sidecar.contend.contention import Contention

from safesync.outer.checkpoint import read_fragments
from safesync.tables.merges import MERGES

STARTS_S = (0.2, 2.8)
END_TOLERANCE_S = 0.25
SCHEDULING_NOISE_S = 0.2


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two 1-s windows with 1.6 s between them: the table and what was seen meanwhile."""
    folder = tmp_path_factory.mktemp("finished")
    with Contention(folder, STARTS_S) as contention:
        contention.start(0, 1)
        contention.wait_ready()
        sockets = [
            socket
            for process in contention.processes
            for socket in psutil.Process(process.pid).net_connections("inet")
        ]
        t0_ns = contention.go()
        sleep_until(t0_ns, 1.5)
        idle_from, busy_cpu_s = time.monotonic(), contention.cpu_s()
        sleep_until(t0_ns, 2.6)
        idle_cpu_s, idle_s = contention.cpu_s() - busy_cpu_s, time.monotonic() - idle_from
        ends = [contention.end(rank, 20) for rank in (0, 1)]
    rows, metadata = MERGES.read_with_metadata(folder / "merges.parquet")
    return {
        "contention": contention,
        "sockets": sockets,
        "idle_share": idle_cpu_s / idle_s,
        "ends": ends,
        "rows": rows,
        "metadata": metadata,
        "t0_ns": t0_ns,
    }


def test_ranks_end_well_and_silently(finished):
    assert finished["ends"] == [(0, ""), (0, "")]


def test_windows_start_and_end_as_planned(finished):
    rows = finished["rows"]
    assert rows["planned_s"].tolist() == list(STARTS_S)
    assert rows["merge"].tolist() == [0, 1]
    assert rows["step"].tolist() == [128, 256]
    late_s = rows["start_s"] - rows["planned_s"]
    assert late_s.between(0, SCHEDULING_NOISE_S).all()
    end_error_s = rows["end_s"] - rows["planned_s"] - 1.0
    assert end_error_s.abs().max() <= END_TOLERANCE_S


def test_windows_are_filled_with_real_work(finished):
    rows = finished["rows"]
    assert (rows["rounds"] >= 5).all()
    assert (rows[["reduce_s", "optimizer_s", "checkpoint_s"]] > 0).all(axis=None)
    phases_s = rows["reduce_s"] + rows["optimizer_s"] + rows["checkpoint_s"]
    window_s = rows["end_s"] - rows["start_s"]
    assert (phases_s <= window_s).all()
    assert (phases_s >= 0.5 * window_s).all()


def test_bytes_are_those_of_the_rounds(finished):
    rows = finished["rows"]
    parameters = rows["reduced_bytes"] / 4 - 2 * rows["rounds"]
    assert (parameters >= rows["rounds"] * 6_250).all()
    assert (parameters <= rows["rounds"] * 100_000).all()
    # outer and velocity of each parameter merged, and a header per file
    headers = rows["written_bytes"] - 8 * parameters
    assert (headers / rows["rounds"]).between(100, 400).all()


def test_ranks_sleep_between_windows(finished):
    assert finished["idle_share"] < 0.1


def test_gloo_listens_and_connects_on_loopback_only(finished):
    sockets = finished["sockets"]
    assert sum(socket.status == psutil.CONN_LISTEN for socket in sockets) >= 2
    addresses = {socket.laddr.ip for socket in sockets}
    addresses |= {socket.raddr.ip for socket in sockets if socket.raddr}
    assert addresses == {"127.0.0.1"}


def test_metadata_carries_the_go_and_the_sizes(finished):
    metadata = finished["metadata"]
    assert metadata["t0_ns"] == finished["t0_ns"]
    assert {"t0_unix_ns", "ranks", "backend", "parameters", "fragment_parameters"} <= set(metadata)


def test_checkpoints_are_readable_and_bounded(finished):
    plan = finished["contention"].plan
    files = list(Path(plan["checkpoint_dir"]).iterdir())
    assert sum(file.stat().st_size for file in files) < 2 * 8 * plan["parameters"] + 400 * 64
    assert not [file for file in files if file.name.endswith(".tmp")]
    states = read_fragments(Path(plan["checkpoint_dir"]))
    assert len({state.round for state in states}) == len(files)


def test_throttled_ranks_keep_their_cap_at_idle_priority_and_end_on_plan(tmp_path):
    changes = {"style": "throttled", "bandwidth_bytes_per_s": 300_000.0}
    with Contention(tmp_path, (0.2, 1.4), **changes) as contention:
        contention.start(0, 1)
        contention.wait_ready()
        priorities = [psutil.Process(one.pid).ionice().ioclass for one in contention.processes]
        contention.go()
        assert [contention.end(rank, 20) for rank in (0, 1)] == [(0, ""), (0, "")]
    assert priorities == [psutil.IOPRIO_CLASS_IDLE] * 2
    rows = MERGES.read(tmp_path / "merges.parquet")
    # a part of 12,500 parameters: the cap pays for five of them in a window of one second
    assert (rows["rounds"] <= 5).all()
    assert (rows["reduced_bytes"] <= 300_000).all()
    assert (rows["reduced_bytes"] >= 2 * 50_000).all()
    assert (rows["end_s"] - rows["planned_s"] - 1.0).abs().max() <= END_TOLERANCE_S


def test_overlapped_ranks_merge_the_whole_model_until_the_next_window(tmp_path):
    changes = {"style": "overlapped", "passes": 2, "horizon_s": 3.2}
    with Contention(tmp_path, (0.2, 1.7), **changes) as contention:
        contention.start(0, 1)
        contention.wait_ready()
        contention.go()
        assert [contention.end(rank, 20) for rank in (0, 1)] == [(0, ""), (0, "")]
    rows, metadata = MERGES.read_with_metadata(tmp_path / "merges.parquet")
    assert rows["rounds"].tolist() == [10, 10]
    assert rows["reduced_bytes"].tolist() == [2 * 4 * 450_000 + 10 * 8] * 2
    assert (rows["start_s"] - rows["planned_s"]).between(0, SCHEDULING_NOISE_S).all()
    assert abs(rows["end_s"] - [1.7, 3.2]).max() <= END_TOLERANCE_S
    assert (metadata["style"], metadata["passes"]) == ("overlapped", 2)


def test_a_cap_below_one_part_is_told_in_one_sentence(tmp_path):
    changes = {"style": "throttled", "bandwidth_bytes_per_s": 50_000.0}
    with Contention(tmp_path, [0.0], ranks=1, **changes) as contention:
        contention.start(0)
        status, stderr = contention.end(0, 30)
    assert status == 1
    assert stderr == (
        "contend rank 0: bandwidth_bytes_per_s 50000 does not pay for one part of a fragment, "
        "50004 bytes, within merge_s 1; raise it\n"
    )


def test_killed_peer_ends_the_other_rank_with_one_sentence(tmp_path):
    with Contention(tmp_path, [0.0], merge_s=20.0, timeout_s=10.0) as contention:
        contention.start(0, 1)
        contention.wait_ready()
        sleep_until(contention.go(), 0.5)
        contention.processes[1].send_signal(signal.SIGKILL)
        status, stderr = contention.end(0, 10)
    assert status == 1
    (sentence,) = stderr.splitlines()
    assert sentence.startswith("contend rank 0: a peer rank closed its connection while waiting")
    assert sentence.endswith("in merge 0")
    assert not (tmp_path / "merges.parquet").exists()


def test_silent_peer_ends_the_other_rank_within_the_time_out(tmp_path):
    with Contention(tmp_path, [0.0], merge_s=20.0, timeout_s=3.0) as contention:
        contention.start(0, 1)
        contention.wait_ready()
        sleep_until(contention.go(), 0.5)
        contention.processes[1].send_signal(signal.SIGSTOP)
        status, stderr = contention.end(0, 6)
    assert status == 1
    (sentence,) = stderr.splitlines()
    assert "a peer rank did not answer in time while waiting for" in sentence


def test_absent_peer_is_told_as_a_failed_rendezvous(tmp_path):
    with Contention(tmp_path, [0.0], timeout_s=1.0) as contention:
        contention.start(0)
        status, stderr = contention.end(0, 30)
    assert status == 1
    assert "while waiting for the rendezvous of 2 ranks" in stderr


def test_sigterm_ends_a_rank_at_once_inside_a_collective(tmp_path):
    with Contention(tmp_path, [0.0], merge_s=20.0) as contention:
        contention.start(0, 1)
        contention.wait_ready()
        sleep_until(contention.go(), 0.5)
        # rank 0 now blocks in a collective that rank 1 never joins
        contention.processes[1].send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        contention.processes[0].terminate()
        assert contention.end(0, 2) == (143, "")
    assert not list((tmp_path / "checkpoints").glob(".*"))


def test_sigint_ends_a_waiting_rank_at_once(tmp_path):
    with Contention(tmp_path, [0.0], ranks=1) as contention:
        contention.start(0)
        contention.wait_ready()
        contention.processes[0].send_signal(signal.SIGINT)
        assert contention.end(0, 2) == (130, "")


def test_rank_ends_when_its_parent_is_killed(tmp_path):
    assert not Contention(tmp_path, [0.0], ranks=1).outlived_parent()


def test_late_go_is_recorded_as_late_and_the_planned_end_is_kept(tmp_path):
    with Contention(tmp_path, [0.1], ranks=1) as contention:
        contention.start(0)
        contention.wait_ready()
        contention.go(in_s=-0.4)
        assert contention.end(0, 20) == (0, "")
    (row,) = MERGES.read(tmp_path / "merges.parquet").to_dict("records")
    assert row["start_s"] >= 0.4
    assert abs(row["end_s"] - 1.1) <= END_TOLERANCE_S
    assert row["rounds"] > 0


def test_ranks_stay_idle_until_the_load_is_over(tmp_path):
    with Contention(tmp_path, [0.0], ranks=1, merge_s=0.5) as contention:
        (tmp_path / "stop").unlink()
        contention.start(0)
        contention.wait_ready()
        t0_ns = contention.go()
        sleep_until(t0_ns, 1.5)
        begin_cpu_s = contention.cpu_s()
        sleep_until(t0_ns, 2.5)
        assert contention.processes[0].poll() is None
        assert contention.cpu_s() - begin_cpu_s < 0.1
        assert not (tmp_path / "merges.parquet").exists()
        (tmp_path / "stop").touch()
        assert contention.end(0, 20) == (0, "")
    assert len(MERGES.read(tmp_path / "merges.parquet")) == 1


def test_no_windows_give_an_empty_table(tmp_path):
    with Contention(tmp_path, ranks=1) as contention:
        contention.start(0)
        contention.wait_ready()
        contention.go()
        assert contention.end(0, 20) == (0, "")
    assert MERGES.read(tmp_path / "merges.parquet").empty


def test_unusable_checkpoint_folder_is_named_in_one_sentence(tmp_path):
    with Contention(tmp_path, [0.0], ranks=1, checkpoint_dir=str(tmp_path / "no")) as contention:
        contention.start(0)
        status, stderr = contention.end(0, 30)
    assert status == 1
    (sentence,) = stderr.splitlines()
    assert sentence.startswith(f"contend rank 0: {tmp_path / 'no'}/outer-")


def test_rank_outside_the_plan_is_refused_in_one_sentence(tmp_path):
    with Contention(tmp_path, [0.0], ranks=1) as contention:
        contention.start(1)
        status, stderr = contention.end(0, 30)
    assert status == 1
    assert stderr == f"contend rank 1: {contention.path}: ranks is 1, so there is no rank 1\n"
