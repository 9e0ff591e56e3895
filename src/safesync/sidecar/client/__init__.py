"""The load generator: Locust, in one process or several, replays an arrivals table, open loop.

Started as ``python -m safesync.sidecar.client PLAN.json`` (fields: ``plan.Plan``). It answers with
the requests table (one row per arrival, whatever happened), the lag of its own event loop, and
Locust's statistics. With ``processes`` above 1 it starts itself that often, each time with a share
of the arrivals, and merges the answers (``shards``). Locust is the engine (environment, runner,
user, ``request`` event, statistics) and geventhttpclient, which Locust's FastHttpUser uses too, is
the transport.

This module imports nothing, so that ``__main__`` can monkey-patch before anything else is loaded.
"""
