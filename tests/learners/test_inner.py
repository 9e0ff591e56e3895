import math

import pytest
import torch
from torch import nn

from safesync.learners.inner import BETAS, Inner
from safesync.learners.model import Transformer, mean_loss
from safesync.learners.settings import Training

SIZES = {"layers": 2, "width": 16, "heads": 2, "context": 12}
SETTINGS = Training(**SIZES, batch=4, lr=0.02, warm_up_steps=4, clip=0.5)


def model(seed=0):
    torch.manual_seed(seed)
    return Transformer(**SIZES)


def batches(count, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(256, (4, 13), generator=generator) for _ in range(count)]


def test_it_begins_as_ignorant_as_a_guess():
    assert mean_loss(model(), batches(1)[0]).item() == pytest.approx(math.log(256), abs=0.1)


def test_no_prediction_sees_what_comes_after_it():
    one = batches(1)[0][:, :-1]
    other = one.clone()
    other[:, 7:] = (other[:, 7:] + 1) % 256
    first, second = model()(one), model()(other)
    torch.testing.assert_close(first[:, :7], second[:, :7], rtol=0, atol=1e-6)
    assert not torch.allclose(first[:, 7:], second[:, 7:], atol=1e-3)


def test_flat_is_the_models_own_memory():
    inner = Inner(model(), SETTINGS, decay_steps=100)
    assert inner.flat.numel() == sum(parameter.numel() for parameter in model().parameters())
    inner.flat.data.fill_(0.25)
    assert all((parameter == 0.25).all() for parameter in inner.model.parameters())


def test_steps_equal_torchs_adamw_on_the_models_parameters():
    plain = model()
    optimizer = torch.optim.AdamW(
        plain.parameters(), lr=0.02, betas=BETAS, weight_decay=SETTINGS.weight_decay
    )
    inner = Inner(model(), SETTINGS, decay_steps=100)
    for batch in batches(6):
        optimizer.param_groups[0]["lr"] = inner.learning_rate()
        optimizer.zero_grad()
        loss = mean_loss(plain, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        optimizer.step()
        assert inner.train_step(batch) == pytest.approx(loss.item(), abs=1e-4)
    expected = torch.cat([parameter.detach().flatten() for parameter in plain.parameters()])
    torch.testing.assert_close(inner.flat.detach(), expected, rtol=0, atol=1e-4)


def test_learning_rate_follows_the_global_step_whatever_merges_do():
    inner = Inner(model(), SETTINGS, decay_steps=24)
    rates = []
    for step in range(40):
        inner.step = step
        rates.append(inner.learning_rate() / 0.02)
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4] == pytest.approx(1.0)
    assert rates[14] == pytest.approx(0.55)  # half way from step 4 to step 24
    assert rates[24:] == [pytest.approx(0.1)] * 16


def test_restored_steps_and_moments_continue_to_the_last_bit():
    straight, early = (Inner(model(), SETTINGS, decay_steps=100) for _ in range(2))
    data = batches(8)
    for batch in data[:4]:
        straight.train_step(batch)
        early.train_step(batch)
    later = Inner(model(seed=9), SETTINGS, decay_steps=100)
    later.restore(early.step, early.moments)
    later.flat.data.copy_(early.flat.data)
    assert [straight.train_step(b) for b in data[4:]] == [later.train_step(b) for b in data[4:]]
    assert torch.equal(straight.flat, later.flat)


def test_restoring_without_the_moments_would_be_noticed():
    straight, bare = (Inner(model(), SETTINGS, decay_steps=100) for _ in range(2))
    data = batches(8)
    for batch in data[:4]:
        straight.train_step(batch)
    bare.step = straight.step
    bare.flat.data.copy_(straight.flat.data)
    assert [straight.train_step(b) for b in data[4:]] != [bare.train_step(b) for b in data[4:]]


def test_evaluation_is_the_mean_over_all_windows_and_changes_nothing():
    inner = Inner(model(), SETTINGS, decay_steps=100)
    windows = torch.cat(batches(3))[:10]  # the last batch is a part
    before = inner.flat.detach().clone()
    assert inner.evaluate(windows) == pytest.approx(mean_loss(model(), windows).item(), abs=1e-5)
    assert torch.equal(inner.flat, before)
    assert inner.step == 0


def test_buffers_are_refused_since_no_merge_averages_them():
    with pytest.raises(ValueError, match=r"has buffers.*running_mean"):
        Inner(nn.BatchNorm1d(3), SETTINGS, decay_steps=1)
    assert list(model().buffers()) == []


def test_parameters_of_another_type_are_refused():
    with pytest.raises(ValueError, match="must be float32"):
        Inner(nn.Linear(2, 2, dtype=torch.float64), SETTINGS, decay_steps=1)
