import pytest
import torch
import torch.distributed as dist
from outer.ranks import join, run_ranks

from safesync.outer import CheckpointError, NonFiniteError, OuterMerge, split
from safesync.outer.checkpoint import read_fragments

PARAMETERS = 1000
FRAGMENTS = split(PARAMETERS, 400)
ROUNDS = [FRAGMENTS[index % len(FRAGMENTS)] for index in range(7)]


@pytest.fixture
def alone(tmp_path):
    join(0, 1, tmp_path)
    yield tmp_path
    dist.destroy_process_group()


def _initial(rank):
    return torch.linspace(-1, 1, PARAMETERS) + rank


def _inner(rank, turn, outer):
    generator = torch.Generator().manual_seed(100 * turn + rank)
    return outer + torch.randn(outer.numel(), generator=generator)


def _checkpoints(folder, name):
    path = folder / name
    path.mkdir()
    return path


def _merge_seven_rounds(rank, folder):
    checkpoints = _checkpoints(folder, f"checkpoints.{rank}")
    merge = OuterMerge(_initial(rank), largest_fragment=400, checkpoint_dir=checkpoints)
    outers, inners, reduced, written = [], [], [], []
    for turn, fragment in enumerate(ROUNDS):
        inner = _inner(rank, turn, merge.outer[fragment.range])
        cost = merge.round(fragment, inner)
        assert min(cost.reduce_s, cost.optimizer_s, cost.checkpoint_s) >= 0
        outers.append(merge.outer.clone())
        inners.append(torch.nn.functional.pad(inner, (0, 400 - inner.numel())))
        reduced.append(cost.reduced_bytes)
        written.append(cost.written_bytes)
    return {
        "outers": torch.stack(outers),
        "inners": torch.stack(inners),
        "velocity": merge.velocity,
        "reduced": torch.tensor(reduced),
        "written": torch.tensor(written),
    }


def _refuse_and_go_on(rank, folder):
    """Merge well once, then with poisoned values; return the texts and the state's changes."""
    checkpoints = _checkpoints(folder, f"refused.{rank}")
    merge = OuterMerge(_initial(0), largest_fragment=400, checkpoint_dir=checkpoints)
    fragment = FRAGMENTS[0]
    merge.round(fragment, _inner(rank, 0, merge.outer[fragment.range]))
    outer, velocity = merge.outer.clone(), merge.velocity.clone()
    texts = []
    for poison in (
        [None, float("nan")],
        [float("inf"), None],
        [float("inf"), float("-inf")],
        [3e38, 3e38],
    ):
        inner = _inner(rank, 1, merge.outer[fragment.range])
        if poison[rank] is not None:
            inner[7] = poison[rank]
        try:
            merge.round(fragment, inner)
        except NonFiniteError as error:
            texts.append(str(error))
    assert torch.equal(merge.outer, outer)
    assert torch.equal(merge.velocity, velocity)
    rounds = [state.round for state in read_fragments(checkpoints)]
    assert rounds == ([1] if rank == 0 else [])
    merge.round(fragment, _inner(rank, 2, merge.outer[fragment.range]))
    assert not torch.equal(merge.outer, outer)
    return {
        "refusals": torch.tensor(list("\n".join(texts).encode()), dtype=torch.uint8),
        "outer_after_refusals": merge.outer,
    }


def _both_scenarios(rank, folder):
    return _merge_seven_rounds(rank, folder) | _refuse_and_go_on(rank, folder)


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    return folder, run_ranks(_both_scenarios, 2, folder)


def test_outer_is_bit_identical_on_both_ranks_after_each_merge(two_ranks):
    _, (first, second) = two_ranks
    for turn in range(len(ROUNDS)):
        assert torch.equal(first["outers"][turn], second["outers"][turn])
        assert torch.equal(first["inners"][turn], second["inners"][turn])


def test_equals_torch_sgd_on_the_mean_pseudo_gradient(two_ranks):
    _, (first, _) = two_ranks
    parameters = [torch.nn.Parameter(_initial(0)[f.range].clone()) for f in FRAGMENTS]
    optimizers = [torch.optim.SGD([p], lr=0.7, momentum=0.9, nesterov=True) for p in parameters]
    for turn, fragment in enumerate(ROUNDS):
        parameter = parameters[turn % len(FRAGMENTS)]
        outer = parameter.data
        inners = [_inner(rank, turn, outer) for rank in (0, 1)]
        parameter.grad = outer - (inners[0] + inners[1]) / 2
        optimizers[turn % len(FRAGMENTS)].step()
        merged = first["outers"][turn]
        torch.testing.assert_close(merged[fragment.range], parameter.data, rtol=0, atol=1e-5)
        torch.testing.assert_close(
            first["inners"][turn][: fragment.size], merged[fragment.range], rtol=0, atol=0
        )


def test_first_merge_moves_towards_the_inner_mean_and_only_in_its_fragment(two_ranks):
    _, (first, _) = two_ranks
    before, after = _initial(0), first["outers"][0]
    mean = (_inner(0, 0, before[:400]) + _inner(1, 0, before[:400])) / 2
    direction = torch.sign(after[:400] - before[:400])
    assert torch.equal(direction, torch.sign(mean - before[:400]))
    assert torch.equal(after[400:], before[400:])


def test_bytes_are_counted_and_only_rank_0_writes(two_ranks):
    folder, (first, second) = two_ranks
    expected = [4 * (fragment.size + 2) for fragment in ROUNDS]
    assert first["reduced"].tolist() == second["reduced"].tolist() == expected
    assert second["written"].tolist() == [0] * len(ROUNDS)
    assert list((folder / "checkpoints.1").iterdir()) == []
    files = sorted((folder / "checkpoints.0").iterdir())
    sizes = {file.stat().st_size for file in files}
    assert len(files) == len(FRAGMENTS)
    assert set(first["written"].tolist()) == sizes


def test_restore_gives_back_the_outer_state(two_ranks, alone):
    folder, (first, _) = two_ranks
    merge = OuterMerge(
        torch.zeros(PARAMETERS), largest_fragment=400, checkpoint_dir=folder / "checkpoints.0"
    )
    merge.restore()
    assert torch.equal(merge.outer, first["outers"][-1])
    assert torch.equal(merge.velocity, first["velocity"])
    assert merge.rounds == len(ROUNDS)


def test_restore_lets_the_later_round_hold_where_fragments_overlap(alone):
    merge = OuterMerge(_initial(0), largest_fragment=PARAMETERS, checkpoint_dir=alone)
    (whole,) = split(PARAMETERS, PARAMETERS)
    for turn, fragment in enumerate([FRAGMENTS[0], whole, FRAGMENTS[1]]):
        merge.round(fragment, _inner(0, turn, merge.outer[fragment.range]))
    again = OuterMerge(torch.zeros(PARAMETERS), largest_fragment=400, checkpoint_dir=alone)
    again.restore()
    assert torch.equal(again.outer, merge.outer)


@pytest.mark.parametrize(
    ("parameters", "message"), [(900, "the model has only 900"), (1100, "1000 of the model's 1100")]
)
def test_restore_refuses_a_checkpoint_of_another_size(alone, parameters, message):
    merge = OuterMerge(_initial(0), largest_fragment=400, checkpoint_dir=alone)
    for fragment in FRAGMENTS:
        merge.round(fragment, merge.outer[fragment.range].clone())
    other = OuterMerge(torch.zeros(parameters), largest_fragment=400, checkpoint_dir=alone)
    with pytest.raises(CheckpointError, match=message):
        other.restore()


def test_one_rank_with_lr_1_and_no_momentum_takes_the_inner_values(alone):
    merge = OuterMerge(
        _initial(0), largest_fragment=PARAMETERS, checkpoint_dir=alone, lr=1.0, momentum=0.0
    )
    (whole,) = split(PARAMETERS, PARAMETERS)
    for turn in range(3):
        target = _inner(0, turn, merge.outer)
        merge.round(whole, target.clone())
        torch.testing.assert_close(merge.outer, target, rtol=0, atol=1e-6)


def test_inner_buffer_gives_the_same_merge_as_the_callers_own_memory(alone):
    merges = [OuterMerge(_initial(0), largest_fragment=400, checkpoint_dir=alone) for _ in range(2)]
    for turn, fragment in enumerate(ROUNDS):
        inner = _inner(0, turn, merges[0].outer[fragment.range])
        buffer = merges[0].inner_buffer(fragment).copy_(inner)
        merges[0].round(fragment, buffer)
        merges[1].round(fragment, inner)
    assert torch.equal(merges[0].outer, merges[1].outer)


def test_non_finite_pseudo_gradient_is_refused_on_all_ranks_before_it_is_applied(two_ranks):
    _, (first, second) = two_ranks
    assert torch.equal(first["refusals"], second["refusals"])
    texts = bytes(first["refusals"].tolist()).decode().splitlines()
    named = [text.split("not finite on ")[-1].split(";")[0] for text in texts[:3]]
    assert named == ["rank 1", "rank 0", "rank 0, 1"]
    assert "overflows" in texts[3]
    assert torch.equal(first["outer_after_refusals"], second["outer_after_refusals"])
