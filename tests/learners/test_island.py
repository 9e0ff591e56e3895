"""Islands in real gloo processes: what a merge does to them, and what it must leave alone."""

from contextlib import suppress

import numpy as np
import pytest
import torch
import torch.distributed as dist
from outer.ranks import join, run_ranks

from safesync.learners.corpus import BLOCK
from safesync.learners.inner import BETAS
from safesync.learners.island import Island
from safesync.learners.model import Transformer, mean_loss
from safesync.learners.settings import Plan
from safesync.outer import NonFiniteError
from safesync.outer.checkpoint import read_fragments

CPU = torch.device("cpu")
SIZES = {"layers": 1, "width": 16, "heads": 2, "context": 16}


def plan(folder, **changes):
    values = {
        **SIZES,
        "islands": 2,
        "batch": 4,
        "warm_up_steps": 2,
        "heldout_tokens": 256,
        "seed": 5,
        "slot": 1,
        "slots": 8,
        "steps": 12,
        "decay_steps": 12,
        "merges": (3, 6, 9),
        "folder": folder,
    }
    made = Plan(**values | changes)
    made.checkpoints.mkdir(parents=True)
    corpus = np.random.default_rng(0).integers(0, 256, 64 * BLOCK, dtype=np.uint8)
    made.corpus.write_bytes(corpus.tobytes())
    return made


def _two_islands(rank, folder):
    """Train to the end of the plan; return what each merge found and left, and the refusal."""
    own = plan(folder / f"rank{rank}", merges=(3, 6, 9, 11))
    own = own.model_copy(update={"folder": folder / "rank0"})
    dist.barrier()
    island = Island(own, rank, CPU)
    found = {"first_parameters": island.outer.outer.clone()}
    outers, inners, kept, untouched = [], [], [], []
    for _ in range(3):
        island.train_to(island.next_merge())
        assert not torch.equal(island.inner.flat, island.outer.outer)
        moments = {name: tensor.clone() for name, tensor in island.inner.moments.items()}
        island.merge()
        outers.append(island.outer.outer.clone())
        inners.append(island.inner.flat.detach().clone())
        after = island.inner.moments
        kept.append(all(torch.equal(moments[name], after[name]) for name in moments))
        untouched.append(bool(moments["exp_avg_sq"].any()))
    rows, facts = island.result()
    found |= {
        "outers": torch.stack(outers),
        "inners": torch.stack(inners),
        "kept": torch.tensor(kept),
        "moved": torch.tensor(untouched),
        "loss": torch.tensor(rows["loss"].to_numpy()).reshape(2, -1),
        "tokens": torch.tensor(rows["tokens"].to_numpy()).reshape(2, -1),
    }
    if rank == 0:
        steps = [at["step"] for at in facts["heldout"]]
        assert steps == [0, 3, 6]
        assert facts["final_heldout_loss"] == facts["heldout"][-1]["loss"]
        assert facts["merge_steps"] == [3, 6, 9, 11, 12]
        assert len(facts["merge_costs"]) == 3
    return found | _refused(island, rank)


def _refused(island, rank):
    """Poison rank 1 and merge: nobody may apply it, nor write it down."""
    island.train_to(island.next_merge())
    outer, velocity = island.outer.outer.clone(), island.outer.velocity.clone()
    if rank == 1:
        island.inner.flat.data[7] = float("nan")
    with pytest.raises(NonFiniteError, match="not finite on rank 1; it was refused on all ranks"):
        island.merge()
    (state,) = read_fragments(island._folder)
    assert torch.equal(state.outer, outer)
    assert state.round == 3
    return {
        "same": torch.tensor(
            [
                torch.equal(island.outer.outer, outer),
                torch.equal(island.outer.velocity, velocity),
                bool(torch.isfinite(island.outer.outer).all()),
            ]
        )
    }


@pytest.fixture(scope="module")
def two_islands(tmp_path_factory):
    return run_ranks(_two_islands, 2, tmp_path_factory.mktemp("islands"))


def test_islands_begin_alike_though_each_drew_its_own_parameters(two_islands):
    first, second = two_islands
    assert torch.equal(first["first_parameters"], second["first_parameters"])
    assert first["first_parameters"].std() > 0.01


def test_outer_parameters_are_bit_identical_on_both_after_each_merge(two_islands):
    first, second = two_islands
    assert len(first["outers"]) == 3
    for merge in range(3):
        assert torch.equal(first["outers"][merge], second["outers"][merge])
        assert torch.equal(first["inners"][merge], first["outers"][merge])
        assert torch.equal(second["inners"][merge], second["outers"][merge])


def test_moments_are_kept_across_merges(two_islands):
    for island in two_islands:
        assert island["kept"].all()
        assert island["moved"].all()


def test_every_island_has_losses_of_its_own_from_its_first_step_to_its_last(two_islands):
    first, second = two_islands
    assert torch.equal(first["loss"], second["loss"])  # gathered: both know both
    assert first["loss"].shape == (2, 9)
    assert (first["loss"][0] != first["loss"][1]).all()
    assert torch.isfinite(first["loss"]).all()
    assert first["tokens"].tolist() == [[64 * step for step in range(1, 10)]] * 2


def test_a_non_finite_island_is_refused_before_it_reaches_the_other(two_islands):
    for island in two_islands:
        assert island["same"].all()


@pytest.fixture
def alone(tmp_path):
    join(0, 1, tmp_path)
    yield tmp_path
    dist.destroy_process_group()


def train(island):
    while (target := island.next_merge()) is not None:
        island.train_to(target)
        island.merge()
    return island


def one_island(folder, **changes):
    return Island(plan(folder, islands=1, **changes), 0, CPU)


@pytest.mark.parametrize("spread", [{}, {"fragments": 3, "delay_steps": 2}], ids=str)
def test_one_island_with_outer_lr_1_and_no_momentum_is_plain_adamw(alone, spread):
    merged = one_island(alone / "merged", outer_lr=1.0, outer_momentum=0.0, **spread)
    plain = Transformer(**SIZES)
    torch.nn.utils.vector_to_parameters(merged.outer.outer.clone(), plain.parameters())
    optimizer = torch.optim.AdamW(plain.parameters(), betas=BETAS, weight_decay=0.1)
    source = one_island(alone / "source")._stream
    losses = []
    for step in range(12):
        merged.inner.step = step
        optimizer.param_groups[0]["lr"] = merged.inner.learning_rate()
        loss = mean_loss(plain, source.next())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    merged.inner.step = 0
    rows, _ = train(merged).result()
    np.testing.assert_allclose(rows["loss"], losses, rtol=0, atol=1e-4)
    expected = torch.nn.utils.parameters_to_vector(plain.parameters()).detach()
    torch.testing.assert_close(merged.outer.outer, expected, rtol=0, atol=5e-4)


def test_a_merge_moves_towards_what_was_learned(alone):
    island = one_island(alone / "run", outer_lr=0.5, outer_momentum=0.0)
    before = island.outer.outer.clone()
    island.train_to(island.next_merge())
    learned = island.inner.flat.detach().clone()
    island.merge()
    torch.testing.assert_close(island.outer.outer, (before + learned) / 2, rtol=0, atol=1e-6)


def test_the_last_merge_takes_the_mean_without_momentum(alone):
    island = one_island(alone / "run")
    while (target := island.next_merge()) < 12:
        island.train_to(target)
        island.merge()
    velocity = island.outer.velocity.clone()
    island.train_to(12)
    learned = island.inner.flat.detach().clone()
    island.merge()
    torch.testing.assert_close(island.inner.flat.detach(), learned, rtol=0, atol=1e-6)
    assert torch.equal(island.outer.velocity, velocity) and velocity.any()
    assert island.next_merge() is None


def test_outer_momentum_carries_a_merge_on(alone):
    island = one_island(alone / "run", outer_lr=0.5, outer_momentum=0.9)
    start = island.outer.outer.clone()
    island.train_to(island.next_merge())
    gradient = start - island.inner.flat.detach()
    island.merge()
    torch.testing.assert_close(island.outer.outer, start - 0.5 * 1.9 * gradient, rtol=0, atol=1e-6)
    torch.testing.assert_close(island.outer.velocity, gradient, rtol=0, atol=1e-7)


@pytest.mark.parametrize("merges", [1, 2])
def test_an_island_taken_up_at_a_checkpoint_equals_one_that_went_on(alone, merges):
    straight = train(one_island(alone / "straight"))
    stopped = one_island(alone / "stopped")
    for _ in range(merges):
        stopped.train_to(stopped.next_merge())
        stopped.merge()
    stopped.train_to(stopped.next_merge() - 1)  # lost: no merge followed
    resumed = Island(stopped._plan, 0, CPU)
    assert resumed.inner.step == 3 * merges
    assert torch.equal(resumed.outer.velocity, stopped.outer.velocity)
    train(resumed)
    assert torch.equal(resumed.outer.outer, straight.outer.outer)
    assert torch.equal(resumed.outer.velocity, straight.outer.velocity)
    (rows, facts), (expected, known) = resumed.result(), straight.result()
    assert rows["loss"].tolist() == expected["loss"].tolist()
    assert facts["heldout"] == known["heldout"]


def test_a_kill_between_island_files_and_outer_state_leaves_the_last_checkpoint(alone):
    island = one_island(alone / "run")
    island.train_to(island.next_merge())
    island.merge()
    outer = island.outer.outer.clone()
    island.train_to(island.next_merge())
    with pytest.raises(KeyboardInterrupt), pytest.MonkeyPatch.context() as patch:
        # the instant after the island's own file is written
        patch.setattr(island.outer, "round", _interrupt)
        island.merge()
    resumed = Island(island._plan, 0, CPU)
    assert resumed.inner.step == 3
    assert torch.equal(resumed.outer.outer, outer)


def _interrupt(*_):
    raise KeyboardInterrupt


def test_only_the_last_two_checkpoints_of_an_island_are_kept(alone):
    island = train(one_island(alone / "run", merges=(2, 4, 6, 8, 10)))
    names = sorted(path.name for path in island._folder.glob("island-*"))
    assert names == [f"island-0000-00000{merge}.safetensors" for merge in (4, 5)]


def test_an_update_comes_late_and_keeps_what_was_learned_meanwhile(alone):
    island = one_island(alone / "run", merges=(4,), fragments=2, delay_steps=2)
    half = -(-island.inner.flat.numel() // 2)
    halves = (slice(0, half), slice(half, None))
    for number, (taken, applied) in enumerate([(4, 6), (8, 10)]):
        mine, other = halves[number], halves[1 - number]
        assert island.next_merge() == taken
        island.train_to(taken)
        then, before = island.inner.flat.detach().clone(), island.outer.outer.clone()
        island.merge()
        merged = island.outer.outer.clone()
        assert torch.equal(island.inner.flat, then)
        assert not torch.equal(merged[mine], before[mine])
        assert torch.equal(merged[other], before[other])
        assert island.next_merge() == applied
        island.train_to(applied)
        now = island.inner.flat.detach().clone()
        island.merge()
        assert torch.equal(island.outer.outer, merged)
        assert torch.equal(island.inner.flat[other], now[other])
        learned = (now - then)[mine]
        assert learned.abs().max() > 1e-3
        expected = merged[mine] + learned
        torch.testing.assert_close(island.inner.flat[mine].detach(), expected, rtol=0, atol=1e-6)
    assert island.next_merge() == 12


def test_overlapped_training_is_the_algorithm_step_by_step(alone):
    lr, momentum = 0.5, 0.9
    settings = {"outer_lr": lr, "outer_momentum": momentum, "merges": (3, 8)}
    overlapped = one_island(alone / "overlapped", **settings, fragments=2, delay_steps=2)
    plain = one_island(alone / "plain", **settings)
    size = plain.inner.flat.numel()
    first, second = slice(0, -(-size // 2)), slice(-(-size // 2), size)
    # windows from 3 to 8 and from 8 to 12: a fragment at their start and half way, rounded down
    taken = {3: first, 5: second, 8: first, 10: second}
    outer, velocity = plain.outer.outer.clone(), torch.zeros(size)
    inner, late = plain.inner.flat.data, {}
    for step in range(13):
        if step in late:
            part, merged, then = late.pop(step)
            inner[part] = merged + (inner[part] - then)
        if part := taken.get(step):
            gradient = outer[part] - inner[part]
            velocity[part] = momentum * velocity[part] + gradient
            outer[part] -= lr * (gradient + momentum * velocity[part])
            if step + 2 < 12:  # what comes after the last step does not come
                late[step + 2] = (part, outer[part].clone(), inner[part].clone())
        if step < 12:
            plain.train_to(step + 1)
    assert not late
    train(overlapped)
    blocking = train(one_island(alone / "blocking", **settings))
    found = overlapped.inner.flat.detach()
    torch.testing.assert_close(found, inner, rtol=0, atol=1e-4)
    torch.testing.assert_close(overlapped.outer.velocity, velocity, rtol=0, atol=1e-4)
    assert (found - blocking.inner.flat.detach()).abs().max() > 1e-3


@pytest.mark.parametrize("delay_steps", [0, 3])
def test_held_out_losses_are_those_of_the_outer_parameters_when_a_merge_is_complete(
    alone, delay_steps
):
    island = one_island(alone / "run", merges=(3, 8), fragments=2, delay_steps=delay_steps)
    while (target := island.next_merge()) is not None:
        island.train_to(target)
        island.merge()
    _, facts = island.result()
    # the second fragments are taken at 5 and 10; at 12 the training closes
    steps = [0, 5, 10, 12] if delay_steps == 0 else [0, 8, 12]
    assert [at["step"] for at in facts["heldout"]] == steps
    assert facts["merge_steps"] == [3, 8, 12]
    assert len(facts["merge_costs"]) == 5
    island.inner.flat.data.copy_(island.outer.outer)
    assert facts["final_heldout_loss"] == island.inner.evaluate(island._heldout_windows)


STREAMED = {"merges": (3, 8), "steps": 14, "fragments": 3, "delay_steps": 3}
# taken at 3, 4, 6, 8, 10, 12; applied at 6, 7, 9, 11, 13 and never
STOPS = [3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14]


@pytest.fixture(scope="module")
def streamed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streamed")
    join(0, 1, folder)
    straight = train(one_island(folder / "run", **STREAMED))
    rows, facts = straight.result()
    dist.destroy_process_group()
    return straight, rows, facts


@pytest.mark.parametrize("stop", range(1, len(STOPS)))
def test_overlapped_merges_are_taken_up_wherever_they_stood(streamed, alone, stop):
    straight, rows, facts = streamed
    stopped = one_island(alone / "stopped", **STREAMED)
    for step in STOPS[:stop]:
        assert stopped.next_merge() == step
        stopped.train_to(step)
        stopped.merge()
    stopped.train_to(stopped.next_merge())
    with suppress(KeyboardInterrupt), pytest.MonkeyPatch.context() as patch:
        # where a fragment is due, the kill comes just after the island's own file is written
        patch.setattr(stopped.outer, "round", _interrupt)
        stopped.merge()
    resumed = Island(stopped._plan, 0, CPU)
    # until all three fragments were merged once, there is no whole checkpoint
    whole = [step for step in (6, 8, 10, 12) if step <= STOPS[stop - 1]]
    assert resumed.inner.step == (whole[-1] if whole else 0)
    train(resumed)
    assert torch.equal(resumed.inner.flat, straight.inner.flat)
    assert torch.equal(resumed.outer.outer, straight.outer.outer)
    assert torch.equal(resumed.outer.velocity, straight.outer.velocity)
    again, known = resumed.result()
    assert again["loss"].tolist() == rows["loss"].tolist()
    assert known["heldout"] == facts["heldout"]


def test_turns_of_one_step_are_all_taken_after_a_kill_between_them(alone):
    crowded = {"merges": (3, 11), "fragments": 4, "delay_steps": 5}
    straight = train(one_island(alone / "straight", **crowded))
    stopped = one_island(alone / "stopped", **crowded)
    while stopped.outer.rounds < 6:
        stopped.train_to(stopped.next_merge())
        with suppress(KeyboardInterrupt), pytest.MonkeyPatch.context() as patch:
            # all four fragments are due at step 11, and two are merged
            patch.setattr(stopped.outer, "round", _at_most(6, stopped.outer))
            stopped.merge()
    assert stopped.inner.step == 11
    resumed = train(Island(stopped._plan, 0, CPU))
    assert torch.equal(resumed.inner.flat, straight.inner.flat)
    assert torch.equal(resumed.outer.velocity, straight.outer.velocity)


def _at_most(rounds, outer):
    merge = outer.round

    def bounded(*arguments):
        if outer.rounds == rounds:
            raise KeyboardInterrupt
        return merge(*arguments)

    return bounded


def _two_overlapped(rank, folder):
    """Train to the end; return what each stop left, and what the close did."""
    own = plan(folder / f"rank{rank}", merges=(3, 8), fragments=2, delay_steps=2)
    own = own.model_copy(update={"folder": folder / "rank0"})
    dist.barrier()
    island = Island(own, rank, CPU)
    outers, inners = [], []
    while (target := island.next_merge()) is not None:
        island.train_to(target)
        island.merge()
        outers.append(island.outer.outer.clone())
        inners.append(island.inner.flat.detach().clone())
    return {"outers": torch.stack(outers), "inners": torch.stack(inners)}


def test_overlapped_islands_agree_on_outer_parameters_and_keep_their_own(tmp_path):
    first, second = run_ranks(_two_overlapped, 2, tmp_path)
    assert torch.equal(first["outers"], second["outers"])
    assert len(first["outers"]) == 6  # taken at 3, 5, 8 and 10, applied at 5, 7 and 10; the end
    differ = (first["inners"] != second["inners"]).any(dim=1)
    assert differ[:-1].all()
    # at the end both are the mean of both
    assert torch.equal(first["inners"][-1], second["inners"][-1])
    assert torch.equal(first["inners"][-1], first["outers"][-1])
