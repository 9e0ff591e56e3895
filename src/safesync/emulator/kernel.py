"""The compiled loop: vLLM's v1 scheduler, step by step, over plain arrays.

What a step holds follows `vllm/v1/core/sched/scheduler.py` of vLLM 0.32 (`Scheduler.schedule`,
`_preempt_request`, `update_from_output`) and `kv_cache_manager.py` (`allocate_slots`), for a
server without speculative decoding, connectors or asynchronous scheduling (vLLM turns that off on
a CPU):

1. Running sequences in the order of their admission, each with all tokens it lacks (a decode
   lacks one, an unfinished prefill the rest of its prompt) as far as the token budget goes. Where
   KV blocks lack, the sequence admitted last is preempted: its blocks are freed, its cache is
   lost, and it returns to the *front* of the waiting queue; if it was the sequence itself, the
   scan stops.
2. Only if nothing was preempted: waiting requests first come, first served, while budget and
   `max_num_seqs` last. The first that does not fit ends the scan, and it must fit whole (prompt
   and what it has generated), although only its chunk is allocated.
3. Sequences whose tokens are all computed emit one token when the step ends; those that have
   emitted their last free their blocks then. The next step starts at that instant.

Left out: prefix caching. In vLLM a preempted request can find blocks of its own still cached when
it resumes; here it computes everything again.

Nothing is compiled on import: numba compiles a function when it is first called. Arrays are passed
one by one, not in tuples, and helpers are inlined: both spare numba's counting of references, which
took ten times as long as everything else.
"""

from typing import NamedTuple

import numba
import numpy as np

# Rows of `lengths`, int64, shape (2, requests).
PROMPT = 0
OUTPUT = 1

# Rows of `windows`, float64, shape (5, windows): seconds since t0, and the factor on work inside,
# with its growth for each further sequence in the step, and what a whole step inside takes beyond.
START = 0
END = 1
FACTOR = 2
GROWTH = 3
DELAY = 4

# Rows of `times`, float64, shape (2, requests), seconds since t0.
FIRST = 0
LAST = 1

# Rows of `slots`: one column per running sequence, in the order of admission.
REQUEST = 0
COMPUTED = 1  # tokens in the KV cache
TOTAL = 2  # prompt and emitted tokens
HELD = 3  # KV blocks
NEW = 4  # tokens that this step computes
SLOT_ROWS = 5

# Entries of `count`.
RUNNING = 0
FREE = 1  # KV blocks
HEAD = 2  # the next arrival that was never admitted
STACK = 3  # preempted requests, the front of the waiting queue on top
DONE = 4
STEPS = 5
PREEMPTIONS = 6
WINDOW = 7  # the next window that has not ended
PEAK = 8  # most running sequences
COUNTS = 9


class Step(NamedTuple):
    """Step time: seconds for any step, per decode, per prefill token, per context token."""

    base_s: float
    per_decode_s: float
    per_prefill_token_s: float
    per_context_token_s: float


class Bounds(NamedTuple):
    """Bounds of a batch, in sequences, tokens, blocks and tokens per block."""

    max_num_seqs: int
    max_num_batched_tokens: int
    kv_blocks: int
    block_size: int


def compiled(function):
    """Return `function` compiled on its first call, kept on disk where a folder can be written."""
    options = {"forceinline": True, "nogil": True}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba finds no folder for its cache: compile once per process
        return numba.njit(**options)(function)


@compiled
def replay(
    now_s,
    until_s,
    slots,
    stack,
    count,
    ready_s,
    lengths,
    windows,
    step,
    bounds,
    times,
    token_s,
    token_at,
):
    """Run requests until all are done, or no step can begin before `until_s`; returns when.

    slots, stack, count: the engine's state, which a later call can take up; at the start zeros,
    of shapes (SLOT_ROWS, most sequences), (2, most sequences) and (COUNTS,), with all blocks free.
    ready_s: float64, shape (requests,), ascending, when the engine sees each request; each small
    enough for the KV cache alone, and all that come before `until_s`. Written: `times`, and
    `token_s`, the time of every token, where it is not empty; token_at: where each request's
    tokens start in it.
    """
    while count[DONE] < ready_s.size and now_s < until_s:
        if count[RUNNING] == 0 and count[STACK] == 0:
            now_s = max(now_s, ready_s[count[HEAD]])
            if now_s >= until_s:
                break  # others may be ready at this very instant
        budget, preempted = _schedule_running(slots, stack, count, bounds)
        if not preempted:
            _admit(now_s, budget, slots, stack, count, ready_s, lengths, bounds)
        count[PEAK] = max(count[PEAK], count[RUNNING])
        work_s, sequences = _work(slots, count, lengths, step)
        now_s = _advance(now_s, work_s, sequences, count, windows)
        count[STEPS] += 1
        _emit(now_s, slots, count, lengths, times, token_s, token_at)
        now_s = _decode_only(
            now_s,
            until_s,
            slots,
            stack,
            count,
            ready_s,
            lengths,
            windows,
            step,
            bounds,
            token_s,
            token_at,
        )
    return now_s


@compiled
def _blocks(tokens, block_size):
    return (tokens + block_size - 1) // block_size


@compiled
def _schedule_running(slots, stack, count, bounds):
    """Give running sequences their tokens and blocks: (budget left, whether any was preempted)."""
    budget = bounds.max_num_batched_tokens
    preempted = False
    at = 0
    while at < count[RUNNING] and budget > 0:
        new = min(slots[TOTAL, at] - slots[COMPUTED, at], budget)
        lacking = _blocks(slots[COMPUTED, at] + new, bounds.block_size) - slots[HELD, at]
        while lacking > count[FREE] and count[RUNNING] > at:
            _preempt_last(slots, stack, count)
            preempted = True
        if count[RUNNING] == at:
            break
        count[FREE] -= lacking
        slots[HELD, at] += lacking
        slots[NEW, at] = new
        budget -= new
        at += 1
    slots[NEW, at : count[RUNNING]] = 0
    return budget, preempted


@compiled
def _preempt_last(slots, stack, count):
    count[RUNNING] -= 1
    last = count[RUNNING]
    count[FREE] += slots[HELD, last]
    stack[0, count[STACK]] = slots[REQUEST, last]
    stack[1, count[STACK]] = slots[TOTAL, last]
    count[STACK] += 1
    count[PREEMPTIONS] += 1


@compiled
def _head_tokens(now_s, stack, count, ready_s, lengths):
    """Tokens that the first waiting request has to compute, 0 if none waits."""
    if count[STACK] > 0:
        return stack[1, count[STACK] - 1]
    if count[HEAD] < ready_s.size and ready_s[count[HEAD]] <= now_s:
        return lengths[PROMPT, count[HEAD]]
    return 0


@compiled
def _admit(now_s, budget, slots, stack, count, ready_s, lengths, bounds):
    """Move waiting requests into the batch while sequences, tokens and blocks last."""
    while budget > 0 and count[RUNNING] < bounds.max_num_seqs:
        total = _head_tokens(now_s, stack, count, ready_s, lengths)
        if total == 0 or _blocks(total, bounds.block_size) > count[FREE]:
            break
        if count[STACK] > 0:
            count[STACK] -= 1
            request = stack[0, count[STACK]]
        else:
            request = count[HEAD]
            count[HEAD] += 1
        at = count[RUNNING]
        count[RUNNING] += 1
        new = min(total, budget)
        slots[REQUEST, at] = request
        slots[COMPUTED, at] = 0
        slots[TOTAL, at] = total
        slots[HELD, at] = _blocks(new, bounds.block_size)
        slots[NEW, at] = new
        count[FREE] -= slots[HELD, at]
        budget -= new


@compiled
def _work(slots, count, lengths, step):
    """Seconds that the scheduled step takes without contention, and its sequences."""
    decodes = 0
    prefill = 0
    context = 0
    sequences = 0
    for at in range(count[RUNNING]):
        new = slots[NEW, at]
        if new == 0:
            continue
        sequences += 1
        context += slots[COMPUTED, at]
        lacking = slots[TOTAL, at] - slots[COMPUTED, at]
        if lacking == 1 and slots[TOTAL, at] > lengths[PROMPT, slots[REQUEST, at]]:
            decodes += 1
        else:
            prefill += new
    work_s = (
        step.base_s
        + step.per_decode_s * decodes
        + step.per_prefill_token_s * prefill
        + step.per_context_token_s * context
    )
    return work_s, sequences


@compiled
def _advance(now_s, work_s, sequences, count, windows):
    """Return when a step of `work_s` seconds of work that begins at `now_s` ends.

    Work is integrated over time: outside windows it progresses at rate 1, inside one at
    1 / factor, so that a step across an edge is slowed only for its part inside.
    """
    alone_s = work_s
    window = count[WINDOW]
    while window < windows.shape[1]:
        if windows[END, window] <= now_s:
            window += 1
            continue
        room_s = windows[START, window] - now_s
        if room_s > 0.0:
            if work_s <= room_s:
                break
            work_s -= room_s
            now_s = windows[START, window]
        factor = (
            windows[FACTOR, window]
            + windows[GROWTH, window] * (sequences - 1)
            + windows[DELAY, window] / alone_s
        )
        room_s = (windows[END, window] - now_s) / factor
        if work_s <= room_s:
            work_s *= factor
            break
        work_s -= room_s
        now_s = windows[END, window]
        window += 1
    count[WINDOW] = window
    return now_s + work_s


@compiled
def _emit(now_s, slots, count, lengths, times, token_s, token_at):
    """End a step: hand out its tokens and let finished sequences leave, the others in order."""
    kept = 0
    for at in range(count[RUNNING]):
        slots[COMPUTED, at] += slots[NEW, at]
        request = slots[REQUEST, at]
        if slots[NEW, at] > 0 and slots[COMPUTED, at] == slots[TOTAL, at]:
            slots[TOTAL, at] += 1
            emitted = slots[TOTAL, at] - lengths[PROMPT, request]
            if emitted == 1:
                times[FIRST, request] = now_s
            if token_s.size > 0:
                token_s[token_at[request] + emitted - 1] = now_s
            if emitted == lengths[OUTPUT, request]:
                times[LAST, request] = now_s
                count[FREE] += slots[HELD, at]
                count[DONE] += 1
                continue
        if kept < at:
            for row in range(SLOT_ROWS):
                slots[row, kept] = slots[row, at]
        kept += 1
    count[RUNNING] = kept


@compiled
def _uneventful(now_s, slots, stack, count, ready_s, lengths, bounds):
    """Return how many next steps are certain to decode all running sequences and nothing else.

    Certain means: nobody is in its prefill, nobody finishes, nobody can be preempted, and whoever
    waits already cannot be admitted; a new arrival can still end the stretch (see `_decode_only`).
    """
    running = count[RUNNING]
    if running == 0:
        return 0
    waiting = _head_tokens(now_s, stack, count, ready_s, lengths)
    fits = _blocks(waiting, bounds.block_size) <= count[FREE]
    if waiting > 0 and running < bounds.max_num_seqs and fits:
        return 0
    # k tokens need at most ceil(k / block_size) further blocks
    steps = count[FREE] // running * bounds.block_size
    for at in range(running):
        request = slots[REQUEST, at]
        emitted = slots[TOTAL, at] - lengths[PROMPT, request]
        if emitted < 1 or slots[TOTAL, at] - slots[COMPUTED, at] != 1:
            return 0
        steps = min(steps, lengths[OUTPUT, request] - emitted - 1)
    return steps


@compiled
def _decode_only(
    now_s,
    until_s,
    slots,
    stack,
    count,
    ready_s,
    lengths,
    windows,
    step,
    bounds,
    token_s,
    token_at,
):
    """Run the uneventful steps at a cost that does not grow with the batch; returns when it is."""
    steps = _uneventful(now_s, slots, stack, count, ready_s, lengths, bounds)
    if steps <= 0:
        return now_s
    if _head_tokens(now_s, stack, count, ready_s, lengths) > 0:
        until_s = np.inf  # somebody waits already and cannot be admitted, nor can those behind
    elif count[HEAD] < ready_s.size:
        until_s = min(until_s, ready_s[count[HEAD]])
    running = count[RUNNING]
    context = 0
    for at in range(running):
        context += slots[COMPUTED, at]
    taken = 0
    while taken < steps and now_s < until_s:
        work_s = step.base_s + step.per_decode_s * running + step.per_context_token_s * context
        now_s = _advance(now_s, work_s, running, count, windows)
        context += running
        taken += 1
        if token_s.size > 0:
            for at in range(running):
                request = slots[REQUEST, at]
                emitted = slots[TOTAL, at] - lengths[PROMPT, request] + taken
                token_s[token_at[request] + emitted - 1] = now_s
    for at in range(running):
        slots[COMPUTED, at] += taken
        slots[TOTAL, at] += taken
        lacking = _blocks(slots[COMPUTED, at], bounds.block_size) - slots[HELD, at]
        slots[HELD, at] += lacking
        count[FREE] -= lacking
    count[STEPS] += taken
    return now_s
