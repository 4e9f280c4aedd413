"""Training loops: losses equal eager's step by step under one seed."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.helpers import NATIVE, assert_same

STEPS = 5


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # No bias: its gradient is zero but for rounding, which Adam would make large steps of.
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(8 * 16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        out: torch.Tensor = self.head(self.dropout(x.flatten(1)))
        return out


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.layer(self.embedding(ids)).mean(1))
        return out


def images(step: int) -> torch.Tensor:
    return torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(step))


def tokens(step: int) -> torch.Tensor:
    return torch.randint(0, 20, (6, 5), generator=torch.Generator().manual_seed(step))


def losses(
    model: nn.Module, call: Callable[..., torch.Tensor], data: Callable[[int], torch.Tensor], optimizer: str, every: int
) -> list[float]:
    choices = {
        "sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, 0.01),
        "adamw": lambda p: torch.optim.AdamW(p, 0.01),
    }
    opt = choices[optimizer](model.parameters())
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    torch.manual_seed(11)
    seen = []
    for step in range(STEPS):
        loss = F.cross_entropy(call(data(step)), labels) / every
        loss.backward()
        seen.append(loss.item())
        if (step + 1) % every == 0:
            opt.step()
            opt.zero_grad()
    return seen


@pytest.mark.parametrize("every", [1, 2], ids=["", "accumulated"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize(("build", "data"), [(ConvNet, images), (Transformer, tokens)], ids=["conv", "transformer"])
def test_losses_equal_eagers(build, data, optimizer, every):
    torch.manual_seed(0)
    model = build().train()
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, backend="turbine_lite_cpu", fullgraph=True, options=NATIVE)
    want = losses(model, model, data, optimizer, every)
    got = losses(twin, compiled, data, optimizer, every)
    torch.testing.assert_close(torch.tensor(got), torch.tensor(want), rtol=2e-4, atol=1e-5)
    for (name, buffer), other in zip(model.named_buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(other, buffer, rtol=1e-3, atol=1e-4, msg=name)
    if build is ConvNet:
        assert int(twin.norm.num_batches_tracked) == STEPS


def test_dropout_draws_eagers_numbers_and_leaves_the_generator_where_eager_does():
    def function(x):
        return F.dropout(x, 0.4, training=True) + F.dropout(x.exp(), 0.2, training=True)

    x = torch.randn(7, 9)
    torch.manual_seed(5)
    want, after = function(x), torch.rand(1)
    torch.manual_seed(5)
    got = torch.compile(function, backend="turbine_lite_cpu", fullgraph=True, options=NATIVE)(x)
    assert_same(got, want)
    assert torch.equal(torch.rand(1), after)


STRIDED = {
    "transposed": torch.randn(6, 5).t(),
    "channels_last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "sliced": torch.randn(6, 8)[:, ::2],
    "expanded": torch.randn(1, 5).expand(4, 5),
}


@pytest.mark.parametrize("x", STRIDED.values(), ids=STRIDED)
def test_dropout_masks_do_not_depend_on_strides_otherwise_than_eagers(x):
    torch.manual_seed(2)
    want = F.dropout(x, 0.5)
    torch.manual_seed(2)
    got = torch.compile(lambda x: F.dropout(x, 0.5), backend="turbine_lite_cpu", options=NATIVE)(x)
    assert_same(got, want)


def test_the_same_mask_in_backward():
    x = torch.ones(40, 40, requires_grad=True)
    y = torch.compile(lambda x: F.dropout(x, 0.5), backend="turbine_lite_cpu", options=NATIVE)(x)
    y.sum().backward()
    assert torch.equal(x.grad != 0, y != 0)


def test_random_numbers_in_the_middle_of_a_graph():
    def function(x):
        return torch.tanh(torch.tanh(x) + torch.randn_like(x)) * torch.rand(3)

    x = torch.randn(4, 3)
    torch.manual_seed(1)
    want = function(x)
    torch.manual_seed(1)
    got = torch.compile(function, backend="turbine_lite_cpu", fullgraph=True, options=NATIVE)(x)
    assert_same(got, want)


def test_an_updated_weight_is_seen_by_the_next_call():
    model = nn.Linear(4, 3)
    compiled = torch.compile(model, backend="turbine_lite_cpu", options=NATIVE)
    x = torch.randn(2, 4)
    with torch.no_grad():
        for change in (
            lambda: model.weight.add_(1),
            lambda: model.load_state_dict({"weight": torch.ones(3, 4), "bias": torch.zeros(3)}),
            lambda: setattr(model.weight, "data", torch.full((3, 4), 2.0)),
            lambda: setattr(model, "weight", nn.Parameter(torch.full((3, 4), 3.0))),
        ):
            change()
            assert_same(compiled(x), model(x))
