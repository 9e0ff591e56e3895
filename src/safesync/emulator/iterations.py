"""Engine iterations out of client-side chunk times.

All running sequences emit a token at the end of the same engine step, so the chunk times of
concurrent requests fall into groups, one per step; and between two tokens of one request there is
no other step. Requests are therefore laid over each other like rulers: the first by itself, each
later one at the offset (in steps) at which its token times fit best those already laid. That
holds under jitter that would blur a clustering by gaps, as long as nothing is preempted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

_REACH = 3  # offsets tried on both sides of the nearest step
_SAME_STEP = 0.5  # of the median step: a token further from the last step begins a new one


@dataclass(frozen=True)
class Iterations:
    """Engine steps in ascending order, shape (steps,) each, as a client saw them.

    start_s, end_s: float64, seconds since t0; start_s is NaN where it could not be seen (no
    sequence decoded both in this step and in the one before, so the engine may have been idle).
    decodes: sequences that decoded a token. prefills, prefill_tokens: prompts that were finished
    in the step and their tokens. context_tokens: tokens in the KV cache before the step. whole:
    False where a chunk of a prompt that did not fit one step may have been computed too.
    """

    start_s: np.ndarray
    end_s: np.ndarray
    decodes: np.ndarray
    prefills: np.ndarray
    prefill_tokens: np.ndarray
    context_tokens: np.ndarray
    whole: np.ndarray

    def rows(self, chosen: np.ndarray) -> Iterations:
        """Return some of the steps, by a mask."""
        return Iterations(**{name: column[chosen] for name, column in vars(self).items()})

    @property
    def duration_s(self) -> np.ndarray:
        """Seconds of each step, NaN where its start could not be seen."""
        return self.end_s - self.start_s


def iterations(requests: pd.DataFrame, max_num_batched_tokens: int) -> Iterations:
    """Return the engine steps behind the successful rows of a REQUESTS table.

    ValueError: no successful request carries chunk times, or its chunks do not add up to its
    output tokens (a server that does not report usage with every chunk).
    """
    seen = requests["chunk_s"].notna() & (requests["output_tokens"] > 0)
    rows = requests[seen & (requests["status"] == "ok")]
    rows = rows.sort_values("first_token_s", kind="stable")
    if rows.empty:
        raise ValueError("no successful request has chunk times; expected a capture with chunk_s.")
    rulers = [_token_times(row) for row in rows.itertuples()]
    first = _lay(rulers)
    lengths = np.array([ruler.size for ruler in rulers])
    owner = np.repeat(np.arange(len(rulers)), lengths)
    token = np.arange(owner.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    step = first[owner] + token
    steps = int(step.max()) + 1
    end_s = np.full(steps, np.inf)
    # a client can only be late: a step ended before the earliest sight of it and of any later one
    np.minimum.at(end_s, step, np.concatenate(rulers))
    end_s = np.minimum.accumulate(end_s[::-1])[::-1]

    prompt = rows["prompt_tokens"].to_numpy(np.int64)
    opening = token == 0
    decodes = np.bincount(step[~opening], minlength=steps)
    prefill_tokens = np.bincount(first, weights=prompt, minlength=steps).astype(np.int64)
    cached = (prompt[owner] + token - 1)[~opening]
    return Iterations(
        start_s=np.where(decodes > 0, np.concatenate([[np.nan], end_s[:-1]]), np.nan),
        end_s=end_s,
        decodes=decodes,
        prefills=np.bincount(first, minlength=steps),
        prefill_tokens=prefill_tokens,
        context_tokens=np.bincount(step[~opening], weights=cached, minlength=steps),
        whole=_whole(decodes, prefill_tokens, max_num_batched_tokens),
    )


def _token_times(row) -> np.ndarray:
    """Return the time of every token of a request, shape (output tokens,), seconds since t0.

    Of a chunk with several tokens only the last is dated; the others are spread evenly since the
    chunk before.
    """
    chunk_s = row.sent_s + np.asarray(row.chunk_s, dtype=np.float64)
    tokens = np.asarray(row.chunk_tokens, dtype=np.int64)
    if (tokens < 1).any() or tokens.sum() != row.output_tokens:
        raise ValueError(
            f"request {row.request_id} has {row.output_tokens} output tokens but chunks of "
            f"{tokens.tolist()}; expected the server's usage with every chunk."
        )
    return np.interp(np.arange(1, tokens.sum() + 1), np.cumsum(tokens), chunk_s)


def _lay(rulers: list[np.ndarray]) -> np.ndarray:
    """Return the step of each ruler's first token, shape (rulers,); rulers by first token time."""
    intervals = np.concatenate([np.diff(ruler) for ruler in rulers])
    same_s = _SAME_STEP * np.median(intervals) if intervals.size else 0.0
    seen_s = np.full(sum(ruler.size for ruler in rulers), np.inf)
    first = np.zeros(len(rulers), dtype=np.int64)
    steps = 0
    for at, ruler in enumerate(rulers):
        first[at] = offset = _offset(ruler, seen_s[:steps], same_s)
        end = offset + ruler.size
        np.minimum(seen_s[offset:end], ruler, out=seen_s[offset:end])
        steps = max(steps, end)
    return first


def _offset(ruler: np.ndarray, seen_s: np.ndarray, same_s: float) -> int:
    steps = seen_s.size
    if steps == 0 or ruler[0] > seen_s[-1] + same_s:
        return steps
    near = int(np.searchsorted(seen_s, ruler[0]))
    best, least = steps, np.inf
    for offset in range(max(near - _REACH, 0), min(near + _REACH, steps - 1) + 1):
        both = min(ruler.size, steps - offset)
        distance = np.median(np.abs(ruler[:both] - seen_s[offset : offset + both]))
        if distance < least:
            best, least = offset, distance
    return best


def _whole(decodes: np.ndarray, prefill_tokens: np.ndarray, budget: int) -> np.ndarray:
    whole = np.ones(decodes.size, dtype=bool)
    for at in np.flatnonzero(decodes + prefill_tokens > budget):
        further = -(-int(prefill_tokens[at]) // budget)
        whole[max(at - further, 0) : at + 1] = False
    return whole
