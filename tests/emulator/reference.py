"""A plain-Python engine, written from the rules alone: one step at a time, no shortcuts."""

from collections import deque
from dataclasses import dataclass, field


@dataclass
class Sequence:
    at: int
    prompt: int
    output: int
    computed: int = 0
    blocks: int = 0
    token_s: list = field(default_factory=list)

    @property
    def total(self):
        return self.prompt + len(self.token_s)


def step_end(now, work, sequences, windows):
    """Integrate the rate of progress over the pieces between the windows' edges."""
    edges = sorted({edge for start, end, *_ in windows for edge in (start, end) if edge > now})
    alone = work
    for edge in [*edges, float("inf")]:
        factor = 1.0
        for start, end, stretch, phase in windows:
            if start <= now < end:
                factor = phase.factor + phase.per_sequence * (sequences - 1)
                factor = stretch * (factor + phase.delay_s / alone)
        if work * factor <= edge - now:
            return now + work * factor
        work -= (edge - now) / factor
        now = edge
    raise AssertionError


def seen_s(trace, windows, model):
    """When the engine sees each request: later where it arrives inside, and in their order."""
    last = float("-inf")
    for arrival_s in trace.arrival_s.tolist():
        ready_s = arrival_s + model.client_overhead_s
        for start, end, phase in zip(windows.start_s, windows.end_s, windows.phase, strict=True):
            if start <= arrival_s < end:
                ready_s += model.contention[phase].overhead_s
        last = max(last, ready_s)
        yield last


def reference(trace, windows, model):
    """Return ([token times of each request], steps, preemptions)."""
    limits, step = model.limits, model.step
    columns = (windows.start_s, windows.end_s, windows.stretch, windows.phase)
    contended = [(s, e, x, model.contention[p]) for s, e, x, p in zip(*columns, strict=True)]
    free = limits.kv_blocks or 10**9
    size = limits.block_size
    future = deque(
        (ready, Sequence(at, prompt, output))
        for at, (ready, prompt, output) in enumerate(
            zip(
                seen_s(trace, windows, model),
                trace.prompt_tokens.tolist(),
                trace.output_tokens.tolist(),
                strict=True,
            )
        )
    )
    everyone = [sequence for _, sequence in future]
    waiting, running = deque(), []
    now, steps, preemptions = future[0][0], 0, 0
    while future or waiting or running:
        if not waiting and not running:
            now = max(now, future[0][0])
        while future and future[0][0] <= now:
            waiting.append(future.popleft()[1])

        budget, new, evicted = limits.max_num_batched_tokens, {}, False
        for sequence in list(running):
            if budget == 0 or sequence not in running:
                break
            tokens = min(sequence.total - sequence.computed, budget)
            lacking = -(-(sequence.computed + tokens) // size) - sequence.blocks
            while lacking > free and sequence in running:
                last = running.pop()
                free += last.blocks
                last.computed = last.blocks = 0
                waiting.appendleft(last)
                preemptions += 1
                evicted = True
            if sequence not in running:
                break
            free -= lacking
            sequence.blocks += lacking
            new[sequence.at] = tokens
            budget -= tokens
        while waiting and not evicted and budget > 0 and len(running) < limits.max_num_seqs:
            head = waiting[0]
            if -(-head.total // size) > free:
                break
            running.append(waiting.popleft())
            tokens = min(head.total, budget)
            head.blocks = -(-tokens // size)
            free -= head.blocks
            new[head.at] = tokens
            budget -= tokens

        batch = [sequence for sequence in running if sequence.at in new]
        decodes = [s for s in batch if s.token_s and s.total - s.computed == 1]
        prefill = sum(new[s.at] for s in batch if s not in decodes)
        work = (
            step.base_s
            + step.per_decode_s * len(decodes)
            + step.per_prefill_token_s * prefill
            + step.per_context_token_s * sum(s.computed for s in batch)
        )
        now = step_end(now, work, len(batch), contended)
        steps += 1
        for sequence in batch:
            sequence.computed += new[sequence.at]
            if sequence.computed == sequence.total:
                sequence.token_s.append(now)
                if len(sequence.token_s) == sequence.output:
                    running.remove(sequence)
                    free += sequence.blocks
    return [sequence.token_s for sequence in everyone], steps, preemptions
