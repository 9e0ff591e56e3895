"""The load itself: one greenlet per request, and every row finished exactly once."""

import json
import signal
import time

import gevent
from gevent.event import Event
from gevent.pool import Group
from geventhttpclient.client import HTTPClient
from locust.event import EventHook

from safesync.sidecar.client import looplag
from safesync.sidecar.client.dispatch import walk
from safesync.sidecar.client.rows import Row
from safesync.sidecar.client.stream import DONE, StreamError, error_text, events

PATH = "/v1/completions"
_ERROR_CHARACTERS = 500


class RequestError(Exception):
    """The failure of a request in Locust's statistics."""


class Load:
    """Replays ``rows`` (sorted by arrival) against ``client``; times in seconds since t0."""

    def __init__(
        self,
        rows: list[Row],
        client: HTTPClient,
        path: str,
        timeout_s: float,
        stop_s: float,
        request_event: EventHook,
        secret: str | None,
    ):
        self.rows = rows
        self.client = client
        self.path = path
        self.timeout_s = timeout_s
        self.stop_s = stop_s
        self.request_event = request_event
        self.secret = secret
        self.t0_ns = 0
        self.loop_lag: list[tuple[float, float]] = []
        self.sent = 0
        self.done = 0
        self.signal: signal.Signals | None = None
        self.failure: Exception | None = None
        self._requests = Group()
        self._probe: gevent.Greenlet | None = None
        self._over = Event()

    def now(self) -> float:
        """Return the seconds since t0."""
        return (time.monotonic_ns() - self.t0_ns) / 1e9

    def start(self, t0_ns: int) -> None:
        """Set t0, an instant of the monotonic clock that is still to come."""
        self.t0_ns = t0_ns
        self._probe = gevent.spawn(looplag.probe, self.now, self.loop_lag)

    def dispatch(self) -> None:
        """Send every row at its time; returns when the last one is on its way."""
        walk(((row.arrival_s, row) for row in self.rows), self.now, self._spawn)

    def end_early(self, number: signal.Signals) -> None:
        """End the load because of a signal."""
        self.signal = number
        self._over.set()

    def fail(self, failure: Exception) -> None:
        """End the load because the client itself is broken."""
        self.failure = failure
        self._over.set()

    def wait(self) -> None:
        """Wait until every row is done, the stop has come or the load was ended early.

        Afterwards every row is finished: those that were not are ``censored`` at the stop.
        """
        ended = self._over.wait(timeout=max(self.stop_s - self.now(), 0.0))
        stop_s = min(max(self.now(), 0.0), self.stop_s) if ended else self.stop_s
        for row in self.rows:
            if row.status is None:
                why = "in flight at the stop" if row.sent_s is not None else "never sent"
                self._finish(row, "censored", stop_s, why)
        self._probe.kill()
        self._requests.kill(timeout=1.0)

    def _spawn(self, row: Row) -> None:
        if row.status is None:
            self._requests.spawn(self._request, row)

    def _request(self, row: Row) -> None:
        row.sent_s = self.now()
        self.sent += 1
        try:
            with gevent.Timeout(self.timeout_s):
                self._exchange(row)
        except (gevent.Timeout, TimeoutError):
            self._finish(row, "timeout", self.now(), f"no end within {self.timeout_s:g} s")
        except StreamError as error:
            self._finish(row, "error", self.now(), str(error))
        except Exception as error:  # a row for every arrival, whatever happened
            self._finish(row, "error", self.now(), f"{type(error).__name__}: {error}")

    def _exchange(self, row: Row) -> None:
        """Send one request and read its stream to [DONE]; raises on whatever is not a success."""
        response = self.client.request("POST", self.path, body=row.body)
        try:
            if response.status_code != 200:
                raise StreamError(f"HTTP {response.status_code}: {_message(response.read())}")
            for data in events(response):
                if row.status is not None:  # censored a moment ago
                    return
                at_s = self.now()
                if data == DONE:
                    self._succeed(row, at_s)
                    response.read()  # closing on unread bytes would reset the server's connection
                    return
                row.tokens.take(data, at_s)
            raise StreamError("the stream ended without [DONE]")
        finally:
            response.release()

    def _succeed(self, row: Row, at_s: float) -> None:
        """Finish a whole stream; it ends with its last token, not with what follows."""
        tokens = row.tokens
        if tokens.prompt_tokens is None:
            raise StreamError("the stream has no usage, so its tokens cannot be counted")
        if tokens.prompt_tokens != row.prompt_tokens:
            raise StreamError(
                f"usage.prompt_tokens is {tokens.prompt_tokens}, sent were {row.prompt_tokens}"
            )
        if not tokens.chunk_s:
            raise StreamError("the stream has no token")
        if at_s > self.stop_s:
            self._finish(row, "censored", self.stop_s, "in flight at the stop")
        else:
            self._finish(row, "ok", tokens.chunk_s[-1], None)

    def _finish(self, row: Row, status: str, done_s: float, error: str | None) -> None:
        """Stamp the row's end and tell Locust, with the response time from the schedule."""
        if row.status is not None:
            return
        if error is not None:
            if self.secret:
                error = error.replace(self.secret, "***")
            error = error[:_ERROR_CHARACTERS]
        row.status, row.done_s, row.error = status, done_s, error
        row.body = b""
        self.done += 1
        self.request_event.fire(
            request_type="POST",
            name=PATH,
            response_time=max(done_s - row.arrival_s, 0.0) * 1e3,
            response_length=row.tokens.size_bytes,
            exception=None if status == "ok" else RequestError(f"{status}: {error}"),
            context={},
        )
        if self.done == len(self.rows):
            self._over.set()


def _message(body: bytes) -> str:
    """Return the error message in the body of a response, or the body's beginning."""
    try:
        return error_text(json.loads(body))
    except (ValueError, AttributeError):
        return body.decode("utf-8", "replace")
