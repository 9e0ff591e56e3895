"""Speed of the outer merge and of an inner step, against floors measured in the same run.

A merge of the whole model is compared with the sum of a plain all-reduce of one flat buffer of its
size and a plain write with fsync of what its checkpoint holds, taken in turn, round by round. An
inner step is compared with a bare training loop of the same model on the same batches. Figures are
medians over rounds; run it on an idle machine.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch import nn

from safesync.learners.corpus import standard_library
from safesync.learners.data import Stream
from safesync.learners.inner import BETAS, Inner
from safesync.learners.model import Transformer, mean_loss
from safesync.learners.settings import Training
from safesync.outer import Fragment, OuterMerge, join

MERGE_LIMIT = 1.15
STEP_LIMIT = 1.05
_WARM_UP = 2


def seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def rank_main(rank: int, ranks: int, parameters: int, rounds: int, folder: Path) -> None:
    """Merge, reduce and write in turn; rank 0 leaves its seconds in ``folder``."""
    join("gloo", folder / "rendezvous", rank=rank, ranks=ranks, timeout_s=120)
    whole = Fragment(0, parameters)
    outer = torch.linspace(-0.02, 0.02, parameters)
    merge = OuterMerge(outer, largest_fragment=parameters, checkpoint_dir=folder)
    inner = torch.empty(parameters)
    flat = torch.full((parameters,), 0.5)
    state = [memoryview(part.numpy()).cast("B") for part in (merge.outer, merge.velocity)]
    found: dict[str, list[float]] = {}
    for turn in range(rounds + _WARM_UP):
        torch.mul(merge.outer, 0.99, out=inner)
        dist.barrier()
        begin = time.perf_counter()
        cost = merge.round(whole, inner)
        took = {"merge": time.perf_counter() - begin, **vars(cost)}
        dist.barrier()
        flat.fill_(0.5)
        took["floor_reduce"] = seconds(lambda: dist.all_reduce(flat))
        dist.barrier()
        if rank == 0:
            took["floor_write"] = seconds(lambda: write(folder / "floor.bin", state))
        dist.barrier()
        if turn >= _WARM_UP:
            for name, value in took.items():
                found.setdefault(name, []).append(float(value))
    if rank == 0:
        save_file({name: torch.tensor(values) for name, values in found.items()}, folder / "found")
    dist.destroy_process_group()


def write(path: Path, parts: list[memoryview]) -> None:
    """Write ``parts`` as dd does with conv=fsync, to a new file that takes the old one's place."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb", buffering=0) as file:
        for part in parts:
            for start in range(0, len(part), 2**20):
                file.write(part[start : start + 2**20])
        os.fsync(file.fileno())
    temporary.replace(path)


def merges(ranks: int, parameters: int, rounds: int, folder: Path) -> bool:
    """Print what a merge takes beside its floors; return whether the limit holds."""
    mp.spawn(rank_main, args=(ranks, parameters, rounds, folder), nprocs=ranks)
    found = {name: values.tolist() for name, values in load_file(folder / "found").items()}
    middle = {name: statistics.median(values) for name, values in found.items()}
    size = 4e-9 * parameters
    floors = [
        one + other for one, other in zip(found["floor_reduce"], found["floor_write"], strict=True)
    ]
    ratio = statistics.median(
        one / floor for one, floor in zip(found["merge"], floors, strict=True)
    )
    print(f"merge of {parameters / 1e6:g} M parameters, {ranks} ranks, median of {rounds} rounds")
    for what, name, gigabytes in (
        ("reduce, with pseudo-gradient and checks", "reduce_s", size),
        ("  floor: all_reduce of one flat buffer", "floor_reduce", size),
        ("optimizer (Nesterov, copy back)", "optimizer_s", size),
        ("checkpoint", "checkpoint_s", 2 * size),
        ("  floor: write with fsync", "floor_write", 2 * size),
        ("whole merge", "merge", size),
    ):
        print(f"  {what:<42} {middle[name]:8.3f} s {gigabytes / middle[name]:8.2f} GB/s")
    return verdict("whole merge / sum of the floors", ratio, MERGE_LIMIT)


def inner_steps(blocks: int, steps: int) -> bool:
    """Print what an inner step takes beside a bare loop's; return whether the limit holds."""
    torch.set_num_threads(1)
    settings = Training()
    sizes = settings.model_dump(include={"layers", "width", "heads", "context"})
    data = np.frombuffer(standard_library(), dtype=np.uint8)[: 2**20].copy()
    stream = Stream(data, context=settings.context, batch=settings.batch, seed=0)
    inner = Inner(Transformer(**sizes), settings, decay_steps=10_000)
    bare = Transformer(**sizes)
    optimizer = torch.optim.AdamW(
        bare.parameters(),
        lr=settings.lr,
        betas=BETAS,
        weight_decay=settings.weight_decay,
        fused=True,
    )
    batches = [stream.next() for _ in range(steps)]

    def bare_loop() -> None:
        for batch in batches:
            optimizer.zero_grad()
            loss = mean_loss(bare, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(bare.parameters(), settings.clip)
            optimizer.step()
            loss.item()

    def own_loop() -> None:
        # as an island trains, with its data and in a fixed order of additions
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        for _ in range(steps):
            inner.train_step(stream.next())
        torch.use_deterministic_algorithms(False)

    own_loop(), bare_loop()
    own, floor = [], []
    for _ in range(blocks):
        own.append(seconds(own_loop) / steps)
        floor.append(seconds(bare_loop) / steps)
    ratio = statistics.median(one / other for one, other in zip(own, floor, strict=True))
    print(
        f"inner step of {inner.flat.numel()} parameters, {settings.batch * settings.context} "
        f"tokens: {statistics.median(own) * 1e3:.2f} ms; bare loop "
        f"{statistics.median(floor) * 1e3:.2f} ms"
    )
    return verdict("inner step / bare training loop", ratio, STEP_LIMIT)


def verdict(what: str, ratio: float, limit: float) -> bool:
    holds = ratio <= limit
    print(f"{what}: {ratio:.3f} <= {limit}: {'holds' if holds else 'FAILS'}")
    return holds


def main() -> int:
    """Run both; 0 when both limits hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--parameters", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        good = merges(args.ranks, args.parameters, args.rounds, Path(folder).resolve())
    return 0 if inner_steps(blocks=20, steps=25) and good else 1


if __name__ == "__main__":
    sys.exit(main())
