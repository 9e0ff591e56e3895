"""Where processes listen, and what a server answers to whom."""

import ipaddress
import urllib.error
import urllib.request
from collections.abc import Iterable

import psutil


def listening(processes: Iterable[psutil.Process]) -> dict[str, list[str]]:
    """Return the addresses on which each process accepts connections, by its command line."""
    found: dict[str, list[str]] = {}
    for process in processes:
        try:
            sockets = process.net_connections(kind="inet")
            command = " ".join(process.cmdline())
        except psutil.Error:
            continue
        addresses = [one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN]
        if addresses:
            found.setdefault(command, []).extend(addresses)
    return found


def public(found: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return what of ``listening`` other machines could reach."""
    return {
        command: outside
        for command, addresses in found.items()
        if (outside := [one for one in addresses if not ipaddress.ip_address(one).is_loopback])
    }


def status(url: str, key: str | None = None, body: bytes | None = None) -> int:
    """Return the HTTP status of a request with this bearer token, or without any."""
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    try:
        request = urllib.request.Request(url, data=body, headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
