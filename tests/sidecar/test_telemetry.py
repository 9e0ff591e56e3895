import time

import numpy as np
import pandas as pd
import pytest
from paced_process import paced_server

from safesync.sidecar.telemetry import (
    METRICS,
    PERIOD_S,
    Telemetry,
    kv_cache,
    parse_metrics,
    with_loop_lag,
)
from safesync.tables.telemetry import TELEMETRY

PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_running_other{engine="0"} 100.0
vllm:generation_tokens_total{engine="0",model_name="m"} 1.25e+06
vllm:e2e_request_latency_seconds_bucket{le="0.3",model_name="m"} 7.0
vllm:kv_cache_usage_perc 0.5
"""


def test_the_cache_is_read_from_the_info_metric():
    page = 'vllm:cache_config_info{block_size="128",num_gpu_blocks="728",x="a"} 1.0\n'
    assert kv_cache(PAGE + page) == {"block_size": 128, "blocks": 728}
    untold = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0\n'
    assert kv_cache(untold) == {"block_size": 16, "blocks": None}
    assert kv_cache("") == {"block_size": None, "blocks": None}


def test_metrics_are_summed_over_engines_and_nothing_else_is_taken():
    assert parse_metrics(PAGE) == {"running": 5.0, "output_tokens_total": 1.25e6, "kv_use": 0.5}


def test_loop_lag_is_the_worst_since_the_row_before():
    rows = pd.DataFrame({"t_s": [0.0, 0.2, 0.4, 0.6]})
    lag = pd.DataFrame({"t_s": [0.05, 0.15, 0.2, 0.35], "lag_s": [0.01, 0.03, 0.02, 0.005]})
    filled = with_loop_lag(rows, lag)["loop_lag_s"].to_numpy()
    np.testing.assert_array_equal(filled, [np.nan, 0.03, 0.005, np.nan])


def test_rows_come_on_the_grid_and_a_gone_server_leaves_a_gap_not_a_zero(tmp_path):
    with paced_server() as server:
        telemetry = Telemetry(server.url, {}, time.monotonic_ns())
        telemetry.start()
        time.sleep(1.1)
    time.sleep(1.0)
    rows = telemetry.stop()
    TELEMETRY.write(tmp_path / "t.parquet", rows.assign(loop_lag_s=0.0))
    seen = rows["running"].notna().to_numpy()
    assert seen[:5].all()
    assert not seen[-2:].any()
    assert 9 <= len(rows) <= 12
    ticks = rows["t_s"].to_numpy() / PERIOD_S
    assert np.median(np.abs(ticks - np.rint(ticks))) < 0.1
    assert (np.diff(rows["network_bytes"]) >= 0).all()


@pytest.mark.parametrize("column", TELEMETRY.schema.names)
def test_every_column_of_the_table_is_filled_by_someone(column):
    filled = {"loop_lag_s", "t_s", "cpu_share", "network_bytes", "disk_written_bytes"}
    assert column in filled | set(METRICS.values())
