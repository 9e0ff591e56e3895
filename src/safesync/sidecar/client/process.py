"""The client process: load, report ready, wait for go, run the load, write the tables."""

import argparse
import functools
import gc
import os
import resource
import signal
import sys
import time
from pathlib import Path

import gevent
import gevent.event
import pandas as pd
from geventhttpclient.url import URL
from locust import User, task
from locust.env import Environment
from locust.event import Events
from locust.exception import StopUser

from safesync.sidecar.client.connections import API_KEY, fresh_connections, request_headers
from safesync.sidecar.client.load import PATH, Load
from safesync.sidecar.client.plan import Plan, read_arrivals, read_go, read_plan
from safesync.sidecar.client.prompts import prompt_tokens, request_body
from safesync.sidecar.client.rows import LOOP_LAG, Row, requests_frame
from safesync.sidecar.client.shards import run_shards
from safesync.sidecar.client.statistics import locust_figures
from safesync.tables import TableError, write_document
from safesync.tables.requests import REQUESTS

PROGRESS_S = 5.0
_GO_POLL_S = 0.02
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main(arguments: list[str]) -> int:
    """Run one plan. Returns 0, 1 (the client broke), 2 (bad input) or 128 + the signal's number.

    A signal before t0 ends the process without tables, since nothing was measured; after t0 the
    unfinished rows are censored and every table is written.
    """
    parser = argparse.ArgumentParser(prog="python -m safesync.sidecar.client")
    parser.add_argument("plan", type=Path, help="JSON, see safesync.sidecar.client.plan.Plan")
    path = parser.parse_args(arguments).plan
    for number in _SIGNALS:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        plan = read_plan(path)
        return _run(plan) if plan.processes == 1 else run_shards(plan)
    except (TableError, OSError) as error:
        print(f"client: {error}", file=sys.stderr)
        return 2


def _run(plan: Plan) -> int:
    rows = _rows(plan)
    key = os.environ.get(API_KEY) or None
    hooks = Events()
    load = Load(
        rows=sorted(rows, key=lambda row: row.arrival_s),
        client=fresh_connections(plan.url, limit=len(rows), headers=request_headers(key)),
        path=URL(plan.url).path.rstrip("/") + PATH,
        timeout_s=plan.timeout_s,
        stop_s=plan.stop_s,
        request_event=hooks.request,
        secret=key,
    )
    _allow_connections(len(rows))
    environment = _start(plan, load, hooks)
    collections = _collections()
    gevent.spawn(_print_progress, load)
    load.wait()
    collections = _collections() - collections
    environment.runner.quit()
    if load.failure is not None:
        print(f"client: broke: {load.failure!r}", file=sys.stderr)
        return 1
    facts = {
        "t0_monotonic_ns": load.t0_ns,
        "prompt_seed": plan.prompt_seed,
        "stop_s": plan.stop_s,
        "gc_collections": collections,  # of Python's collector during the load
    }
    _write(plan, rows, load, environment, facts)
    return 0 if load.signal is None else 128 + load.signal


def _rows(plan: Plan) -> list[Row]:
    """Return an unsent row, with its serialised body, for every arrival."""
    return [
        Row(
            request_id=request.request_id,
            arrival_s=request.arrival_s,
            prompt_tokens=request.prompt_tokens,
            body=request_body(
                plan.model,
                prompt_tokens(
                    plan.prompt_seed, request.request_id, request.prompt_tokens, plan.prompt_ids
                ),
                request.output_tokens,
            ),
        )
        for request in read_arrivals(plan.arrivals).itertuples(index=False)
    ]


def _allow_connections(count: int) -> None:
    """Raise the limit on open files, as far as permitted, so that every request fits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))


def _start(plan: Plan, load: Load, hooks: Events) -> Environment:
    """Start Locust, report ready, and return once its one user has t0 and dispatches."""
    ready, go = gevent.event.Event(), gevent.event.Event()

    class OpenLoopUser(User):
        """The one user: arrivals come from the plan, not from users that wait for answers."""

        host = plan.url

        @task
        def replay(self) -> None:
            ready.set()
            go.wait()
            try:
                load.dispatch()
            except Exception as error:  # Locust would log it and start again
                load.fail(error)
            raise StopUser

    environment = Environment(user_classes=[OpenLoopUser], events=hooks)
    environment.create_local_runner().start(user_count=1, spawn_rate=1)
    ready.wait()
    # what exists now stays: no collection may pause the loop while it takes times
    gc.collect()
    gc.freeze()
    gc.disable()
    write_document(plan.ready, {"pid": os.getpid(), "requests": len(load.rows)})
    while not plan.go.exists():
        gevent.sleep(_GO_POLL_S)
    load.start(read_go(plan.go, time.monotonic_ns()))
    for number in _SIGNALS:
        gevent.signal_handler(number, functools.partial(load.end_early, number))
    go.set()
    return environment


def _print_progress(load: Load) -> None:
    while True:
        gevent.sleep(PROGRESS_S)
        print(
            f"client: sent {load.sent} of {len(load.rows)}, done {load.done}, "
            f"in flight {load.sent - load.done}",
            flush=True,
        )


def _write(plan: Plan, rows: list[Row], load: Load, environment: Environment, facts: dict) -> None:
    lag = pd.DataFrame(load.loop_lag, columns=["t_s", "lag_s"], dtype=float)
    LOOP_LAG.write(plan.loop_lag, lag, facts)
    if plan.locust_stats is not None:
        write_document(plan.locust_stats, locust_figures(environment.stats))
    REQUESTS.write(plan.requests, requests_frame(rows), facts)


def _collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())
