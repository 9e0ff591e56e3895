"""The event stream of one completion: events out of bytes, tokens and usage out of events."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

DONE = b"[DONE]"
_FAILED = ("error", "abort")  # finish reasons by which vLLM reports a failed generation


class StreamError(Exception):
    """The server reported a failure inside the stream, or the stream is not what it should be."""


class Response(Protocol):
    """The one call of geventhttpclient's response that reads without waiting for full buffers."""

    def readline(self, sep: bytes) -> bytes: ...


def events(response: Response) -> Iterator[bytes]:
    """Yield the data of each server-sent event as soon as its last byte has arrived.

    Works on bytes, so a character split over packets stays whole; accepts LF and CRLF. Ends where
    the response ends; an event without its blank line is cut and not yielded.
    """
    data: list[bytes] = []
    while line := response.readline(b"\n"):
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            yield b"\n".join(data)
            data = []


@dataclass(slots=True)
class Tokens:
    """What a stream has delivered so far.

    ``chunk_s`` holds the time of each event that carried tokens and ``chunk_tokens`` their number.
    An event carries tokens when any of its token channels (text, content, reasoning, ...) is not
    empty, or when its usage says that tokens were added (a special token, or one that waits for
    the rest of its character, has no text). The number is the growth of
    ``usage.completion_tokens`` when the server sends usage with every event, starting at the first
    (vLLM's ``continuous_usage_stats``), else -1: an event is never assumed to be one token.
    ``prompt_tokens`` and ``output_tokens`` are the last ones that the server's usage named.
    """

    chunk_s: list[float] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    size_bytes: int = 0
    _continuous: bool | None = None

    def take(self, data: bytes, at_s: float) -> None:
        """Count the event ``data`` (not [DONE]) at ``at_s``; raises StreamError on a failure."""
        self.size_bytes += len(data)
        try:
            event = json.loads(data)
        except ValueError as error:
            raise StreamError(f"event is not JSON: {data[:200]!r}") from error
        if not isinstance(event, dict):
            raise StreamError(f"event is not a JSON object: {data[:200]!r}")
        if event.get("error") or event.get("object") == "error":
            raise StreamError(f"error in the stream: {error_text(event)}")
        added = self._take_usage(event.get("usage"))
        choices = event.get("choices")
        if not choices:
            return
        if choices[0].get("finish_reason") in _FAILED:
            raise StreamError(f"finish_reason is '{choices[0]['finish_reason']}'")
        has_text = _has_text(choices[0])
        if self._continuous is None and (has_text or added):
            self._continuous = added is not None
        if has_text or (self._continuous and added):
            self.chunk_s.append(at_s)
            counted = self._continuous and added is not None
            self.chunk_tokens.append(added if counted else -1)

    def _take_usage(self, usage: dict | None) -> int | None:
        """Return how many tokens the event's usage adds, None when it has no usage."""
        if not usage:
            return None
        before = self.output_tokens or 0
        self.prompt_tokens = usage["prompt_tokens"]
        self.output_tokens = usage.get("completion_tokens") or 0
        return self.output_tokens - before


def error_text(document: dict) -> str:
    """Return the message of an error object in OpenAI's or vLLM's form."""
    error = document.get("error") or document
    if isinstance(error, dict):
        return str(error.get("message") or error)
    return str(error)


def _has_text(choice: dict) -> bool:
    if choice.get("text"):
        return True
    delta = choice.get("delta") or {}
    return any(value for name, value in delta.items() if name != "role")
