"""Events and tokens out of bytes, without a server."""

import json

import pytest

from safesync.sidecar.client.stream import StreamError, Tokens, events


class Response:
    """Hands out lines as geventhttpclient's response does, b"" at the end."""

    def __init__(self, data: bytes):
        self.lines = data.splitlines(keepends=True)

    def readline(self, sep: bytes) -> bytes:
        assert sep == b"\n"
        return self.lines.pop(0) if self.lines else b""


def event(text: str, completion_tokens: int | None = None) -> bytes:
    usage = {"prompt_tokens": 3, "completion_tokens": completion_tokens}
    document = {"choices": [{"text": text}]}
    return json.dumps(document | ({} if completion_tokens is None else {"usage": usage})).encode()


def test_events_end_with_a_blank_line():
    data = b": ping\n\ndata: a\n\nid: 1\r\ndata:b\r\n\r\n\ndata: c1\ndata: c2\n\ndata: cut"
    assert list(events(Response(data))) == [b"a", b"b", b"c1\nc2"]


def test_usage_that_comes_only_at_the_end_is_no_token_count():
    """The last chunk's usage names all five tokens: it must not become a chunk of five."""
    tokens = Tokens()
    for number, data in enumerate([event("a"), event("b"), event("", 5)]):
        tokens.take(data, float(number))
    assert tokens.chunk_s == [0.0, 1.0]
    assert tokens.chunk_tokens == [-1, -1]
    assert tokens.output_tokens == 5


def test_case_13_text_is_not_counted_again():
    """Two tokens in three pieces: a tokenizer that counts every piece comes to three."""
    tokens = Tokens()
    for number, data in enumerate([event("Hel", 0), event("lo", 1), event(" world", 2)]):
        tokens.take(data, float(number))
    assert tokens.chunk_s == [0.0, 1.0, 2.0]
    assert tokens.chunk_tokens == [0, 1, 1]
    assert tokens.output_tokens == 2


def test_held_back_text_counts_when_its_token_came():
    """Half a character has no text yet; its token was generated, and its text adds none later."""
    tokens = Tokens()
    for number, data in enumerate([event("", 0), event("", 1), event("é", 2), event("!", 2)]):
        tokens.take(data, float(number))
    assert tokens.chunk_s == [1.0, 2.0, 3.0]
    assert tokens.chunk_tokens == [1, 1, 0]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"error": {"message": "out of memory", "code": 500}}', "out of memory"),
        (b'{"error": "out of memory"}', "out of memory"),
        (b'{"object": "error", "message": "out of memory"}', "out of memory"),
        (b'{"choices": [{"text": "", "finish_reason": "abort"}]}', "'abort'"),
        (b"half of {", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"choices": [{"text": "\xc3"}]}', "not JSON"),
    ],
)
def test_case_14_failures_inside_the_stream_are_raised(data, expected):
    with pytest.raises(StreamError, match=expected):
        Tokens().take(data, 0.0)
