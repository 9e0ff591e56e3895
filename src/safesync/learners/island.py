"""One island: train to the next merge, merge, and so on to the end of the plan."""

import time

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist

from safesync.learners.checkpoint import (
    IslandState,
    read_island,
    remove_island,
    write_island,
)
from safesync.learners.corpus import held_out, shard
from safesync.learners.data import Stream, windows
from safesync.learners.inner import Inner
from safesync.learners.model import Transformer
from safesync.learners.settings import Plan
from safesync.learners.turns import turns
from safesync.outer import (
    CheckpointError,
    Fragment,
    OuterMerge,
    RoundCost,
    broadcast_,
    gather,
    join,
    split,
)
from safesync.tables.learners import LEARNERS
from safesync.workload.streams import stream

_TOLD = 10  # lines of progress in a training run


class DamagedError(RuntimeError):
    """A checkpoint is there and cannot be read; the message names its file."""


def run(plan: Plan, rank: int) -> None:
    """Train one island from the last checkpoint, or the start, to the end of the plan.

    Rank 0 then writes the table LEARNERS of all islands to the plan's folder, with the facts
    ``merge_steps``, ``heldout`` (step and loss at the start and after every merge, when its last
    update is applied), ``final_heldout_loss`` (nats per token, of the merged model),
    ``parameters`` and ``merge_costs`` (what each round since the last start took and moved on rank
    0: one per merge and fragment). Rank 0 tells its progress on standard output. Raises
    DeviceError, PeerLostError, NonFiniteError, DamagedError, CheckpointError, TableError and
    ValueError.
    """
    device = join(
        "gloo" if plan.device == "cpu" else "nccl",
        plan.rendezvous,
        rank=rank,
        ranks=plan.islands,
        timeout_s=plan.timeout_s,
    )
    island = Island(plan, rank, device)
    while (target := island.next_merge()) is not None:
        island.train_to(target)
        island.merge()
    rows, facts = island.result()
    if rank == 0:
        LEARNERS.write(plan.result, rows, facts)
    dist.destroy_process_group()


class Island:
    """A rank's model, data and optimizers; all ranks call the same methods in the same order.

    With one fragment and no delay every merge is a blocking one: the island takes over the merged
    parameters at once. Otherwise a fragment is reduced and stepped when its turn is taken, and the
    island, which has trained on, takes it over ``delay_steps`` later as a difference: merged
    values plus what the island learned since. It is the schedule of Streaming DiLoCo (arXiv
    2501.18512), which mixes merged and own values instead; the difference loses no inner step, so
    that one island with an outer learning rate of 1 and no momentum still trains as if alone.
    """

    def __init__(self, plan: Plan, rank: int, device: torch.device) -> None:
        # the order of additions is part of a run; CUDA has no such order for all of its kernels
        torch.use_deterministic_algorithms(device.type == "cpu")
        # memory that nobody reads before writing need not be filled first
        torch.utils.deterministic.fill_uninitialized_memory = False
        self._plan, self._rank, self._device = plan, rank, device
        self._folder = plan.checkpoints
        # every rank draws its own: the broadcast of rank 0's is what makes them alike
        torch.manual_seed(_seed("parameters", plan.seed, rank))
        model = Transformer(
            layers=plan.layers, width=plan.width, heads=plan.heads, context=plan.context
        ).to(device)
        self.inner = Inner(model, plan, plan.decay_steps)
        corpus = np.fromfile(plan.corpus, dtype=np.uint8)
        self._stream = Stream(
            shard(corpus, plan.slot, plan.slots, rank, plan.islands),
            context=plan.context,
            batch=plan.batch,
            seed=_seed("data", plan.seed, rank),
        )
        self._heldout_windows = windows(
            held_out(corpus), context=plan.context, tokens=plan.heldout_tokens
        )
        size = self.inner.flat.numel()
        self._whole = Fragment(0, size)
        self._fragments = split(size, -(-size // plan.fragments))
        self._turns = turns(plan.closed_merges, len(self._fragments), plan.delay_steps)
        last_turns = self._turns[len(self._fragments) - 1 :: len(self._fragments)]
        self._complete = {0, *(turn.applied for turn in last_turns), plan.steps}
        stops = {plan.steps, *(step for turn in self._turns for step in (turn.taken, turn.applied))}
        self._stops = sorted(stops - {None})
        self.outer = OuterMerge(
            self.inner.flat.detach().clone(),
            largest_fragment=self._fragments[0].size,
            checkpoint_dir=self._folder,
            lr=plan.outer_lr,
            momentum=plan.outer_momentum,
        )
        self.inner.flat.data.copy_(self.outer.outer)
        self._pending: dict[int, torch.Tensor] = {}
        self._loss: list[float] = []
        self._step_s: list[float] = []
        self._heldout: list[tuple[int, float]] = []
        self._costs: list[RoundCost] = []
        self._resume()

    def next_merge(self) -> int | None:
        """Return the inner step at which a merge goes on, as rank 0 decides it; None at the end."""
        step = self.inner.step
        if self._rank == 0 and step in self._complete:
            self._heldout.append((step, self._merged_loss()))
        later = [stop for stop in self._stops if stop > step]
        decided = torch.tensor([later[0] if later else 0], device=self._device)
        broadcast_(decided, "rank 0's choice of the next merge")
        return decided.item() or None

    def train_to(self, step: int) -> None:
        """Take inner steps until ``step`` are done."""
        self.inner.model.train()
        while self.inner.step < step:
            begin = time.perf_counter()
            loss = self.inner.train_step(self._stream.next().to(self._device))
            self._step_s.append(time.perf_counter() - begin)
            self._loss.append(loss)
            self._tell()

    def merge(self) -> None:
        """Apply the updates that are due, then merge with all others the fragments that are.

        The checkpoint of the merge is whole when this returns. After the plan's last step it is
        the mean of all islands that is taken, at an outer learning rate of 1 and without momentum:
        a step of momentum would carry the model past what was learned, the further the fewer
        merges follow, and none does.
        """
        for number in sorted(self._pending):
            if self._turns[number].applied == self.inner.step:
                self._own(number).add_(self._pending.pop(number))
        if self.inner.step == self._plan.steps:
            self._close()
        else:
            self._take_turns()

    def _take_turns(self) -> None:
        """Merge every fragment whose turn is at this inner step and was not yet taken."""
        while (number := self.outer.rounds) < len(self._turns):
            if self._turns[number].taken != self.inner.step:
                return
            write_island(self._folder, self._rank, self._state(number + 1))
            fragment = self._fragment(number)
            values = self.outer.inner_buffer(fragment)
            values.copy_(self._own(number))
            self._costs.append(self.outer.round(fragment, values))
            self._receive(number)
            # rank 0 took part in this reduce, so the outer state of the last round is on disk
            remove_island(self._folder, self._rank, number - 1)

    def _receive(self, number: int) -> None:
        """Take over what was merged in turn ``number``, or keep it until it is to be applied."""
        turn = self._turns[number]
        own, merged = self._own(number), self.outer.outer[self._fragment(number).range]
        if turn.applied == turn.taken:
            own.copy_(merged)
        elif turn.applied is not None:
            self._pending[number] = merged - own

    def _fragment(self, number: int) -> Fragment:
        return self._fragments[self._turns[number].fragment]

    def _own(self, number: int) -> torch.Tensor:
        """Return this island's values of the fragment of turn ``number``, not a copy."""
        return self.inner.flat.data[self._fragment(number).range]

    def _merged_loss(self) -> float:
        """Return the loss of the outer parameters on held-out data, nats per token."""
        own = self.inner.flat.detach().clone()
        self.inner.flat.data.copy_(self.outer.outer)
        loss = self.inner.evaluate(self._heldout_windows.to(self._device))
        self.inner.flat.data.copy_(own)
        return loss

    def _close(self) -> None:
        folder = self._folder / "closing"
        folder.mkdir(exist_ok=True)
        mean = OuterMerge(
            self.outer.outer.clone(),
            largest_fragment=self._whole.size,
            checkpoint_dir=folder,
            lr=1.0,
            momentum=0.0,
        )
        self._costs.append(mean.round(self._whole, self.inner.flat.data))
        self.outer.outer.copy_(mean.outer)

    def result(self) -> tuple[pd.DataFrame, dict]:
        """Return every island's rows in the LEARNERS schema, and the facts of the run."""
        own = torch.tensor([self._loss, self._step_s], dtype=torch.float64, device=self._device)
        losses, step_s = gather(own, "the losses of all islands").cpu().numpy().swapaxes(0, 1)
        islands, steps = losses.shape
        step = np.arange(1, steps + 1, dtype=np.int64)
        rows = pd.DataFrame(
            {
                "island": np.repeat(np.arange(islands, dtype=np.int32), steps),
                "step": np.tile(step, islands),
                "loss": losses.ravel(),
                "tokens": np.tile(step * self._plan.batch * self._plan.context, islands),
                "step_s": step_s.ravel(),
            },
            columns=LEARNERS.schema.names,
        )
        facts = {
            "merge_steps": list(self._plan.closed_merges),
            "parameters": self._whole.size,
            "heldout": [{"step": step, "loss": loss} for step, loss in self._heldout],
            "final_heldout_loss": self._heldout[-1][1] if self._heldout else None,
            "merge_costs": [vars(cost) for cost in self._costs],
        }
        return rows, facts

    def _resume(self) -> None:
        """Take up the last checkpoint, on every rank, when rank 0 finds a whole one."""
        # before every fragment was merged once, the first parameters of some stand in no file
        written = len([*self._folder.glob("outer-*")])
        found = torch.tensor([written == len(self._fragments)], dtype=torch.int64)
        found = found.to(self._device)
        broadcast_(found, "rank 0's search for a checkpoint")
        if not found.item():
            return
        try:
            self.outer.restore()
            state = read_island(self._folder, self._rank, self.outer.rounds)
        except CheckpointError as error:
            raise DamagedError(str(error)) from error
        self.inner.restore(state.step, state.moments)
        self.inner.flat.data.copy_(state.inner)
        self._pending = {turn: add.to(self._device) for turn, add in state.pending.items()}
        self._receive(self.outer.rounds - 1)
        self._stream.restore(state.stream)
        torch.set_rng_state(state.rng)
        self._loss, self._step_s = state.loss.tolist(), state.step_s.tolist()
        self._heldout = [(int(step), loss) for step, loss in state.heldout.tolist()]
        if self._rank == 0:
            print(f"takes up a stopped run's checkpoint, of inner step {state.step}", flush=True)
        # the stopped run may not have come to all turns of this step
        self._take_turns()

    def _state(self, rounds: int) -> IslandState:
        return IslandState(
            rounds=rounds,
            step=self.inner.step,
            inner=self.inner.flat.detach(),
            pending=self._pending,
            moments=self.inner.moments,
            stream=self._stream.state,
            rng=torch.get_rng_state(),
            loss=torch.tensor(self._loss, dtype=torch.float64),
            step_s=torch.tensor(self._step_s, dtype=torch.float64),
            heldout=torch.tensor(self._heldout, dtype=torch.float64).reshape(-1, 2),
        )

    def _tell(self) -> None:
        step, steps = self.inner.step, self._plan.steps
        if self._rank == 0 and step * _TOLD // steps > (step - 1) * _TOLD // steps:
            print(f"inner step {step} of {steps}, loss {self._loss[-1]:.3f}", flush=True)


def _seed(what: str, seed: int, rank: int) -> int:
    return int(stream("learners", what, seed, rank).integers(2**62))
