"""The pool is geventhttpclient's, changed through private attributes: these fail when they move."""

import socket

import pytest

from safesync.sidecar.client.connections import fresh_connections


@pytest.fixture
def pool():
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = fresh_connections(f"http://127.0.0.1:{server.getsockname()[1]}", 2, {})
        yield client._connection_pool
        client.close()


def test_case_07_small_packets_are_sent_at_once(pool):
    """With Nagle's algorithm the end of a large body waits for an acknowledgement."""
    opened = pool.get_socket()
    assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    pool.release_socket(opened)


def test_case_20_a_returned_connection_is_closed(pool):
    opened = pool.get_socket()
    pool.return_socket(opened)
    assert opened.fileno() == -1


def test_the_address_is_resolved_once(pool, monkeypatch):
    """Resolving again would take a round through gevent's thread pool for every request."""
    monkeypatch.setattr("gevent.socket.getaddrinfo", None)
    pool.release_socket(pool.get_socket())
