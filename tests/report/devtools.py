"""A thin client of the DevTools protocol: one headless chromium, pages that it opens and drives."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from websockets.sync.client import ClientConnection, connect

_FLAGS = (
    "--headless",
    "--no-sandbox",  # with one it does not start as root
    "--disable-gpu",
    "--disable-dev-shm-usage",  # a container's is small
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # no name leads out of the machine
    "--remote-debugging-port=0",
)
_ANSWER_S = 60.0
_LOUD = ("error", "warning", "assert")
_OF_THE_PAGE = ("data:", "blob:")  # addresses that no network is needed for


class PageError(Exception):
    """The browser refused a call, or a script of the test failed; the message says which."""


class Page:
    """One page: calls to it, and every event that it has sent."""

    def __init__(self, socket: ClientConnection):
        self._socket = socket
        self._number = 0
        self._file = ""
        self.events: list[dict] = []

    def call(self, method: str, **params) -> dict:
        """Return the browser's answer to ``method``."""
        number = self._send(method, params)
        while True:
            message = json.loads(self._socket.recv(timeout=_ANSWER_S))
            if message.get("id") == number:
                if "error" in message:
                    raise PageError(f"{method}: {message['error']['message']}")
                return message["result"]
            if "method" in message:
                self._note(message)

    def _send(self, method: str, params: dict) -> int:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        return self._number

    def _note(self, event: dict) -> None:
        self.events.append(event)
        if event["method"] != "Fetch.requestPaused":
            return
        paused = {"requestId": event["params"]["requestId"]}
        if event["params"]["request"]["url"].partition("#")[0] == self._file:
            self._send("Fetch.continueRequest", paused)
        else:
            self._send("Fetch.failRequest", paused | {"errorReason": "BlockedByClient"})

    def open(self, path: Path, width: int, height: int, phone: bool) -> None:
        """Open a file in a window of that size; whatever else the page asks for is refused."""
        self._file = path.resolve().as_uri()
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")
        self.call("Fetch.enable", patterns=[{"urlPattern": "*"}])
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.size(width, height, phone=phone)
        self.call("Page.navigate", url=self._file)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        """Set the window's size in CSS pixels; ``phone``: with a finger for a mouse."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=3 if phone else 1,
            mobile=phone,
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)

    def media(self, kind: str = "", **features: str) -> None:
        """Emulate a medium (print) and media features (prefers_color_scheme="dark")."""
        self.call(
            "Emulation.setEmulatedMedia",
            media=kind,
            features=[
                {"name": name.replace("_", "-"), "value": value} for name, value in features.items()
            ],
        )

    def evaluate(self, script: str):
        """Return the value of ``script``, a promise's when it settles."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description") or details["text"])
        return found["result"].get("value")

    def wait(self, condition: str, timeout_s: float = 20.0) -> None:
        """Return once ``condition`` is true; fails when that takes longer than ``timeout_s``."""
        end = time.monotonic() + timeout_s
        while not self.evaluate(condition):
            assert time.monotonic() < end, f"not within {timeout_s:g} s: {condition}"
            time.sleep(0.05)

    def mouse(self, kind: str, x: float, y: float, **more) -> None:
        """Dispatch one mouse event (moved, pressed, released) at a point of the window."""
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind.capitalize()}", x=x, y=y, **more)

    def double_click(self, x: float, y: float) -> None:
        """Click twice at a point, all four events sent at once.

        Waiting for each answer would make two clicks of it where the browser is slow.
        """
        for count in (1, 2):
            for kind, held in (("mousePressed", 1), ("mouseReleased", 0)):
                where = {"x": x, "y": y, "button": "left", "buttons": held, "clickCount": count}
                self._send("Input.dispatchMouseEvent", {"type": kind, **where})

    def press(self, key: str, code: int = 0) -> None:
        """Press and release a key; ``code``: its Windows key code, where the browser acts on it."""
        named = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", **named)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    @property
    def requests(self) -> list[str]:
        """Every address that the page asked for, but those that it carries itself."""
        found = [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] in ("Network.requestWillBeSent", "Fetch.requestPaused")
        ]
        return [url for url in dict.fromkeys(found) if not url.startswith(_OF_THE_PAGE)]

    @property
    def refusals(self) -> list[str]:
        """Why requests were refused before they left the page: csp, its own policy."""
        ended = [one["params"] for one in self.events if one["method"] == "Network.loadingFailed"]
        return [one["blockedReason"] for one in ended if "blockedReason" in one]

    @property
    def problems(self) -> list[str]:
        """Exceptions, console errors and warnings, and what the browser itself complained of."""
        found = []
        for event in self.events:
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                found.append(details.get("exception", {}).get("description") or details["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in _LOUD:
                found.append(" ".join(str(a.get("value", a)) for a in params["args"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in _LOUD:
                found.append(params["entry"]["text"])
        return found


class Browser:
    """A running chromium, by the address of its debugging port."""

    def __init__(self, port: int, path: str):
        self._address = f"ws://127.0.0.1:{port}"
        self._path = path

    @contextmanager
    def page(
        self, file: Path, width: int = 1280, height: int = 1000, *, phone: bool = False
    ) -> Iterator[Page]:
        """Open ``file`` in a tab of its own, of that size in CSS pixels."""
        with _connected(f"{self._address}{self._path}") as socket:
            found = Page(socket).call("Target.createTarget", url="about:blank")["targetId"]
            try:
                with _connected(f"{self._address}/devtools/page/{found}") as own:
                    page = Page(own)
                    page.open(file, width, height, phone)
                    yield page
            finally:
                Page(socket).call("Target.closeTarget", targetId=found)


def _connected(address: str) -> ClientConnection:
    return connect(address, proxy=None, max_size=None, compression=None, ping_interval=None)


@contextmanager
def running(profile: Path) -> Iterator[Browser]:
    """Start a chromium whose profile is in ``profile``, and end it.

    Without one on the PATH the test is skipped, but under CI, where it fails.
    """
    command = shutil.which("chromium")
    if command is None:
        said = "there is no chromium on the PATH: apt-get install --no-install-recommends chromium"
        if os.environ.get("CI"):
            pytest.fail(said, pytrace=False)
        pytest.skip(said)
    log = profile / "chromium.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [command, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Browser(*_port(profile / "DevToolsActivePort", process, log))
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _port(written: Path, process: subprocess.Popen, log: Path) -> tuple[int, str]:
    """Return port and path of the browser's socket, from the file that it writes when ready."""
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        lines = written.read_text().split() if written.exists() else []
        if len(lines) == 2:
            return int(lines[0]), lines[1]
        time.sleep(0.05)
    pytest.fail(f"chromium did not start: {log.read_text(errors='replace')}", pytrace=False)
