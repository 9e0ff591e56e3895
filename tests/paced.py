"""A paced OpenAI-compatible HTTP server for tests: it answers when told to, and keeps the truth.

It streams ``/v1/completions`` like vLLM, with a chosen first-token delay and inter-token delay on
absolute deadlines, can misbehave per request (``--fault``), and serves at ``/truth`` what it really
did: one JSON object per completion, times in nanoseconds of the monotonic clock, which every
process of the machine shares.

A request's *key* is ``prompt[0] - prompt_low``: for safesync's client that is the request_id.

    python tests/paced.py --port 8100 --first-token-s 0.05 --inter-token-s 0.01 --fault 3:cut

Prints one line, ``paced server on http://127.0.0.1:PORT``, once it listens. When the environment
holds VLLM_API_KEY (as a measurement sets it) or SAFESYNC_API_KEY, every ``/v1`` path needs it as
bearer token.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import socket
import struct
import time

BLOCK_TOKENS = 16  # of the simulated prefix cache
_encode = json.JSONEncoder(ensure_ascii=False).encode

FAULTS = {
    "cut": "close the connection after half of the tokens",
    "no_done": "end the HTTP response properly, without the [DONE] event",
    "reset": "read the request, wait --reset-after-s, reset the connection",
    "error_object": "an error object after half of the tokens, then [DONE]",
    "status_500": "HTTP 500 with a JSON error",
    "hang": "send the response's head and nothing else",
    "empty_first": "a chunk without text at once, the first text as scheduled",
    "role_first": "a chat-style chunk with only a role at once, the first text as scheduled",
    "reasoning": "the tokens come as delta.reasoning_content",
    "bytes": "every byte of the stream in a packet of its own",
    "crlf": "CRLF between the lines of the event stream",
    "wrong_prompt": "usage.prompt_tokens is one too many",
    "no_usage": "no usage anywhere",
    "final_usage": "usage only in the last event, as without continuous_usage_stats",
    "fours": "four tokens per chunk, five in the first",
    "late_done": "[DONE] comes 0.3 s after the last token",
    "empty_text": "every token's text is empty (special tokens)",
}

REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 500: "Error"}


@dataclasses.dataclass(frozen=True)
class Pace:
    """How the server behaves; times in seconds."""

    first_token_s: float = 0.05
    inter_token_s: float = 0.01
    prompt_token_s: float = 0.0  # added to the first token, per prompt token
    slots: int = 256  # completions served at once; the others wait
    keep_alive_s: float = 5.0
    reset_after_s: float = 1.0
    model: str = "paced"
    prompt_low: int = 0
    text: str = " token"
    faults: dict = dataclasses.field(default_factory=dict)  # key or "all" -> set of faults


class PacedServer:
    """One server; its counters are what ``/metrics`` shows."""

    def __init__(self, pace: Pace, api_key: str | None):
        unknown = {f for faults in pace.faults.values() for f in faults} - set(FAULTS)
        if unknown:
            raise ValueError(f"--fault: unknown {sorted(unknown)}, expected one of {list(FAULTS)}")
        self.pace = pace
        self.api_key = api_key
        self.slots = asyncio.Semaphore(pace.slots)
        self.truth: list[dict] = []
        self.connections = 0
        self.running = 0
        self.waiting = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.prefix_hits = 0
        self.seen_blocks: set[int] = set()

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it is closed, misbehaves or idles past the keep-alive."""
        self.connections += 1
        number = self.connections
        with contextlib.suppress(
            ConnectionError, asyncio.IncompleteReadError, asyncio.TimeoutError
        ):
            while True:
                head = await asyncio.wait_for(
                    reader.readuntil(b"\r\n\r\n"), timeout=self.pace.keep_alive_s
                )
                method, path, headers = parse_head(head)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                if not await self.answer(method, path, headers, body, writer, number):
                    break
                if headers.get("connection", "").lower() == "close":
                    break
        writer.close()

    async def answer(self, method, path, headers, body, writer, number) -> bool:
        """Answer one request; False when the connection must be closed."""
        if path.startswith("/v1/") and self.api_key:
            given = headers.get("authorization", "")
            if given != f"Bearer {self.api_key}":
                return respond(writer, 401, error(401, "Unauthorized", f"wrong key '{given}'"))
        if method == "GET":
            if path == "/health":
                return respond(writer, 200, b"")
            if path == "/metrics":
                return respond(writer, 200, self.metrics().encode())
            if path == "/version":
                return respond(writer, 200, {"version": "paced"})
            if path == "/truth":
                return respond(writer, 200, self.truth)
            if path == "/v1/models":
                card = {"id": self.pace.model, "object": "model", "max_model_len": 1_000_000}
                return respond(writer, 200, {"object": "list", "data": [card]})
        if (method, path) != ("POST", "/v1/completions"):
            return respond(writer, 404, error(404, "NotFoundError", f"no {method} {path}"))
        return await self.completion(body, writer, number)

    async def completion(self, body, writer, number) -> bool:
        """Pace one completion and append what happened to the truth."""
        truth = {"received_ns": time.monotonic_ns(), "connection": number, "writes_ns": []}
        request = json.loads(body)
        prompt = request["prompt"]
        if isinstance(prompt, str):
            prompt = [hash(word) for word in prompt.split()]
        if request.get("model") != self.pace.model:
            message = f"The model `{request.get('model')}` does not exist."
            return respond(writer, 404, error(404, "NotFoundError", message))
        if not prompt:
            return respond(writer, 400, error(400, "BadRequestError", "prompt is empty"))
        truth["key"] = prompt[0] - self.pace.prompt_low
        truth["prompt"] = prompt[:BLOCK_TOKENS]
        truth["prompt_tokens"] = len(prompt)
        truth["body"] = {name: value for name, value in request.items() if name != "prompt"}
        self.truth.append(truth)
        self.waiting += 1
        try:
            await self.slots.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        try:
            self.count_prompt(prompt)
            keep = await self.serve(request, len(prompt), truth, writer)
            truth["outcome"] = "closed" if writer.transport.is_closing() else "served"
            return keep
        except ConnectionError:
            truth["outcome"] = "closed"
            raise
        finally:
            self.running -= 1
            self.slots.release()

    async def serve(self, request, prompt_tokens, truth, writer) -> bool:
        pace = self.pace
        faults = pace.faults.get(truth["key"], frozenset()) | pace.faults.get("all", frozenset())
        start = time.monotonic()
        if "reset" in faults:
            await sleep_until(start + pace.reset_after_s)
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
            return False
        if "status_500" in faults:
            return respond(writer, 500, error(500, "InternalServerError", "planted"))
        stream = Stream(pace, faults, request, prompt_tokens, writer)
        if not request.get("stream", False):
            due = start + pace.first_token_s + prompt_tokens * pace.prompt_token_s
            await sleep_until(due + (stream.max_tokens - 1) * pace.inter_token_s)
            self.generation_tokens += stream.max_tokens
            return respond(writer, 200, stream.whole())
        stream.head()
        if "hang" in faults:
            await asyncio.sleep(3600)
        if "empty_first" in faults:
            await stream.chunk("", 0)
        if "role_first" in faults:
            await stream.role()
        due = start + pace.first_token_s + prompt_tokens * pace.prompt_token_s
        sent = 0
        while sent < stream.max_tokens:
            tokens = stream.next_tokens(sent)
            await sleep_until(due + (sent + tokens - 1 if sent else 0) * pace.inter_token_s)
            if writer.transport.is_closing():
                raise ConnectionError
            if sent >= stream.max_tokens // 2 and faults & {"cut", "error_object"}:
                if "cut" in faults:
                    return False
                await stream.event(error(400, "BadRequestError", "planted mid-stream"))
                break
            sent += tokens
            truth["writes_ns"].append(time.monotonic_ns())
            await stream.chunk(stream.text(tokens), sent)
            self.generation_tokens += tokens
        if "late_done" in faults:
            await asyncio.sleep(0.3)
        await stream.end(sent)
        return True

    def count_prompt(self, prompt: list[int]) -> None:
        """Count prompt tokens and the tokens of leading blocks that were seen before."""
        self.prompt_tokens += len(prompt)
        hitting, chain = True, 0
        for start in range(0, len(prompt) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
            chain = hash((chain, tuple(prompt[start : start + BLOCK_TOKENS])))
            hitting = hitting and chain in self.seen_blocks
            self.prefix_hits += BLOCK_TOKENS if hitting else 0
            self.seen_blocks.add(chain)

    def metrics(self) -> str:
        """Return the counters in Prometheus text format under vLLM's names."""
        labels = f'{{engine="0",model_name="{self.pace.model}"}}'
        rows = (
            ("num_requests_running", "gauge", self.running),
            ("num_requests_waiting", "gauge", self.waiting),
            ("kv_cache_usage_perc", "gauge", min(self.running / self.pace.slots, 1.0)),
            ("prompt_tokens_total", "counter", self.prompt_tokens),
            ("generation_tokens_total", "counter", self.generation_tokens),
            ("num_preemptions_total", "counter", 0),
            ("prefix_cache_hits_total", "counter", self.prefix_hits),
        )
        return "".join(
            f"# HELP vllm:{name} paced\n# TYPE vllm:{name} {kind}\nvllm:{name}{labels} {value}\n"
            for name, kind, value in rows
        )


class Stream:
    """The event stream of one completion."""

    def __init__(self, pace, faults, request, prompt_tokens, writer):
        self.faults = faults
        self.writer = writer
        self.model = pace.model
        self.token_text = "" if "empty_text" in faults else pace.text
        self.max_tokens = request.get("max_tokens", 16)
        self.prompt_tokens = prompt_tokens + ("wrong_prompt" in faults)
        options = request.get("stream_options") or {}
        self.final_usage = options.get("include_usage", False) and "no_usage" not in faults
        self.continuous = (
            self.final_usage
            and options.get("continuous_usage_stats", False)
            and "final_usage" not in faults
        )
        self.line_end = "\r\n" if "crlf" in faults else "\n"

    def next_tokens(self, sent: int) -> int:
        """Return how many tokens the next chunk holds."""
        size = (4 if sent else 5) if "fours" in self.faults else 1
        return min(size, self.max_tokens - sent)

    def text(self, tokens: int) -> str:
        return self.token_text * tokens

    def usage(self, tokens: int) -> dict:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + tokens,
            "completion_tokens": tokens,
        }

    def whole(self) -> dict:
        """Return the answer to a request that does not stream."""
        choice = {"index": 0, "text": self.text(self.max_tokens), "finish_reason": "length"}
        return self.envelope([choice]) | {"usage": self.usage(self.max_tokens)}

    def envelope(self, choices: list) -> dict:
        return {"id": "cmpl-0", "object": "text_completion", "model": self.model} | {
            "choices": choices
        }

    def head(self) -> None:
        self.writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )

    async def role(self) -> None:
        await self.event(self.envelope([{"index": 0, "delta": {"role": "assistant"}}]))

    async def chunk(self, text: str, total: int) -> None:
        """Send one chunk of ``text`` after which ``total`` tokens have been sent."""
        finish = "length" if total >= self.max_tokens else None
        if "reasoning" in self.faults:
            choice = {"index": 0, "delta": {"reasoning_content": text}, "finish_reason": finish}
        else:
            choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        event = self.envelope([choice])
        if self.continuous:
            event["usage"] = self.usage(total)
        await self.event(event)

    async def end(self, tokens: int) -> None:
        if self.final_usage:
            await self.event(self.envelope([]) | {"usage": self.usage(tokens)})
        if "no_done" not in self.faults:
            await self.send(f"data: [DONE]{self.line_end * 2}")
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def event(self, document: dict) -> None:
        await self.send(f"data: {_encode(document)}{self.line_end * 2}")

    async def send(self, text: str) -> None:
        data = text.encode()
        if "bytes" not in self.faults:
            self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await self.writer.drain()
            return
        for byte in data:
            self.writer.write(b"1\r\n%c\r\n" % byte)
            await asyncio.sleep(0)


def parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Return method, path and the header fields, names in lower case."""
    request_line, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = request_line.split(" ")
    fields = (line.partition(":") for line in lines if line)
    return method, path, {name.lower(): value.strip() for name, _, value in fields}


def error(code: int, kind: str, message: str) -> dict:
    """Return an error in vLLM's form."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def respond(writer, status: int, content) -> bool:
    """Write a whole response; always True, the connection may stay open."""
    kind = "text/plain" if isinstance(content, bytes) else "application/json"
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    writer.write(
        f"HTTP/1.1 {status} {REASONS[status]}\r\ncontent-type: {kind}\r\n"
        f"content-length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return True


async def sleep_until(deadline: float) -> None:
    """Sleep until ``deadline`` on the monotonic clock."""
    delay = deadline - time.monotonic()
    if delay > 0:
        await asyncio.sleep(delay)


def parse_faults(items: list[str]) -> dict:
    """Turn ``KEY:FAULT[,FAULT]`` items into a mapping; KEY is a number or ``all``."""
    faults = {}
    for item in items:
        key, _, names = item.partition(":")
        faults[key if key == "all" else int(key)] = frozenset(names.split(","))
    return faults


async def listen(pace: Pace, port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    paced = PacedServer(pace, os.environ.get("VLLM_API_KEY") or os.environ.get("SAFESYNC_API_KEY"))
    server = await asyncio.start_server(
        paced.connection, "127.0.0.1", port, limit=1 << 24, backlog=1024
    )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    print(f"paced server on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await stop.wait()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="faults: " + "; ".join(f"{name} = {text}" for name, text in FAULTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--uvloop", action="store_true", help="on uvloop, for higher rates")
    parser.add_argument("--fault", action="append", default=[], metavar="KEY:FAULT[,FAULT]")
    for field in dataclasses.fields(Pace):
        if field.name != "faults":
            flag = "--" + field.name.replace("_", "-")
            parser.add_argument(flag, type=field.type, default=field.default)
    options = vars(parser.parse_args())
    port, faults = options.pop("port"), parse_faults(options.pop("fault"))
    if options.pop("uvloop"):
        import uvloop

        uvloop.install()
    asyncio.run(listen(Pace(**options, faults=faults), port))


if __name__ == "__main__":
    main()
