"""HTTP connections: a fresh one per request, small packets sent at once."""

import socket

from geventhttpclient.client import HTTPClient
from geventhttpclient.url import URL

from safesync.tables import TableError

API_KEY = "SAFESYNC_API_KEY"  # of the environment


def fresh_connections(url: str, limit: int, headers: dict[str, str]) -> HTTPClient:
    """Return a client that opens a connection per request, ``limit`` at most at a time.

    A kept connection that the server closes while it idles fails the next burst's first request,
    so none is reused.
    No socket time-outs: the caller bounds the whole request. A POST is never sent twice
    (geventhttpclient repeats idempotent methods only). The address is resolved here, once, because
    gevent resolves even numeric hosts in a thread pool.

    Raises OSError when the host cannot be resolved.
    """
    client = HTTPClient.from_url(
        URL(url),
        concurrency=limit,
        headers=headers,
        connection_timeout=None,
        network_timeout=None,
    )
    # Private attributes: geventhttpclient is pinned, and the tests fail when they change.
    pool = client._connection_pool
    addresses = pool._resolve()
    pool._resolve = lambda: addresses
    pool.return_socket = pool.release_socket
    pool.after_connect = _send_small_packets_at_once
    return client


def request_headers(key: str | None) -> dict[str, str]:
    """Return the headers of every request; raises TableError when ``key`` cannot be one."""
    headers = {"Content-Type": "application/json", "Connection": "close"}
    if key is not None:
        if not (key.isascii() and key.isprintable()):
            raise TableError(f"{API_KEY}: expected printable ASCII characters only")
        headers["Authorization"] = f"Bearer {key}"
    return headers


def _send_small_packets_at_once(sock) -> None:
    # Nagle would hold back the last packet of a large body until the server acknowledges
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
