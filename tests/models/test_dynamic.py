"""One program for many sizes: models with ``dynamic=True`` and with automatic dynamic, then the corners."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn
from torch._dynamo.utils import counters

from tests.helpers import NATIVE, assert_same, relative_error

# Several minutes on two cores.
pytestmark = pytest.mark.full

# Batch and length of the text models' calls, batch and image size of ResNet's.
TEXTS = [(2, 8), (3, 12), (4, 5), (2, 16), (5, 9), (7, 3), (3, 20), (6, 11), (2, 24), (9, 7)]
IMAGES = [(2, 32), (3, 64), (4, 40), (2, 48), (5, 56), (3, 72), (2, 96), (6, 36), (4, 80), (7, 33)]


class Logits(nn.Module):
    """A model that returns nothing but its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(data).logits
        return logits


class NoCache(Logits):
    def forward(self, data: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(data, use_cache=False).logits
        return logits


def bert() -> nn.Module:
    config = hf.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    return Logits(hf.BertForSequenceClassification(config))


def gpt2() -> nn.Module:
    config = hf.GPT2Config(
        vocab_size=100, n_positions=32, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return NoCache(hf.GPT2LMHeadModel(config))


def resnet() -> nn.Module:
    config = hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    return Logits(hf.ResNetForImageClassification(config))


def _data(build: Callable[[], nn.Module]) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    if build is resnet:
        return [torch.randn(batch, 3, size, size, generator=draw) for batch, size in IMAGES]
    return [torch.randint(0, 100, shape, generator=draw) for shape in TEXTS]


def _graphs() -> int:
    return int(counters["turbine_lite"]["graphs"])


def _ten_sizes(build: Callable[[], nn.Module], *, dynamic: bool | None, graphs: int) -> None:
    torch.manual_seed(0)
    model = build().eval()
    compiled = torch.compile(model, backend="turbine_lite_cpu", dynamic=dynamic)
    with torch.no_grad():
        for data in _data(build):
            want, got = model(data), compiled(data)
            assert got.shape == want.shape
            assert relative_error(got, want) < 1e-4, tuple(data.shape)
    assert _graphs() <= graphs
    assert counters["turbine_lite"]["executables"] >= graphs


@pytest.mark.parametrize("build", [bert, gpt2, resnet])
def test_ten_sizes_take_one_graph(build):
    _ten_sizes(build, dynamic=True, graphs=1)


# The first sizes are compiled as they are; when others come, one graph for all.
@pytest.mark.parametrize("build", [bert, gpt2, resnet])
def test_ten_sizes_take_two_graphs_when_dynamic_by_themselves(build):
    _ten_sizes(build, dynamic=None, graphs=2)


@pytest.mark.parametrize(("dynamic", "graphs"), [(True, 1), (None, 2)])
def test_training_with_a_size_for_each_step(dynamic, graphs):
    torch.manual_seed(0)
    model = bert().train()
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, backend="turbine_lite_cpu", dynamic=dynamic)

    def step(model: nn.Module, call: Callable[..., Any], data: torch.Tensor) -> torch.Tensor:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        torch.manual_seed(3)  # of dropout
        loss = nn.functional.cross_entropy(call(data), torch.arange(data.shape[0]) % 2)
        loss.backward()
        gradients = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        optimizer.step()
        optimizer.zero_grad()
        return torch.cat([loss.detach()[None], gradients])

    for data in _data(bert)[:5]:
        assert relative_error(step(twin, compiled, data), step(model, model, data)) < 1e-3, tuple(data.shape)
    assert _graphs() <= 2 * graphs  # forward and backward
    # As a whole: a key's bias, say, is zero but for rounding.
    want, got = (torch.cat([p.detach().flatten() for p in m.parameters()]) for m in (model, twin))
    assert relative_error(got, want) < 1e-4


def test_mark_dynamic_with_bounds():
    model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 3))
    compiled = torch.compile(model, backend="turbine_lite_cpu", fullgraph=True, options=NATIVE)
    with torch.no_grad():
        for batch in (5, 2, 16, 9):
            x = torch.randn(batch, 6)
            torch._dynamo.mark_dynamic(x, 0, min=2, max=16)
            assert_same(compiled(x), model(x))
    assert _graphs() == 1


def _normalize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.exp() * 2, (x + 1).sum(1, keepdim=True).expand(x.shape[0], 3).clone()


@pytest.mark.parametrize("mark", [torch._dynamo.mark_dynamic, torch._dynamo.decorators.mark_unbacked])
def test_empty_and_single(mark):
    # An unbacked size is never guessed to be 0 or 1, so one graph may serve both; a dynamic one is specialised.
    compiled = torch.compile(_normalize, backend="turbine_lite_cpu", fullgraph=True, options={"fallback": "eager"})
    for batch in (4, 0, 1, 6):
        x = torch.randn(batch, 5)
        if batch > 1:
            mark(x, 0)
        assert_same(compiled(x), _normalize(x))


@pytest.mark.parametrize("first", [0, 1, 4])
@pytest.mark.parametrize("dynamic", [True, None])
def test_any_size_may_come_first(first, dynamic):
    compiled = torch.compile(_normalize, backend="turbine_lite_cpu", dynamic=dynamic, options=NATIVE)
    for batch in (first, 0, 1, 3, 5):
        x = torch.randn(batch, 5)
        assert_same(compiled(x), _normalize(x))


EXPRESSIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "sum": lambda x, y: torch.cat([x, y * 2]) + 1,
    "product": lambda x, y: (x[:, None] * y[None]).reshape(-1, x.shape[1]),
    "quotient": lambda x, y: x[::2].exp() * 3,
    "difference": lambda x, y: (x * 2)[2:] + x.shape[0],
    "of both": lambda x, y: (x.repeat(2, 1) @ y.t()).flatten()[3:],
    "new": lambda x, y: torch.arange(x.shape[0] * y.shape[0]).float() + x.sum(),
    "half of a sum": lambda x, y: torch.cat([x, y])[: (x.shape[0] + y.shape[0]) // 2].tanh(),
    "padded": lambda x, y: nn.functional.pad(x, (0, 0, y.shape[0], 1)) * 2,
    "a number too": lambda x, y: (x.relu(), x.shape[0] * 2 + y.shape[0], (x.shape[0] + 1) / 2),
    "transposed": lambda x, y: (x * 2).t() + y.shape[0],
}


@pytest.mark.parametrize("function", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_results_whose_sizes_are_expressions(function):
    compiled = torch.compile(function, backend="turbine_lite_cpu", fullgraph=True, dynamic=True)
    for first, second in ((4, 3), (5, 8), (9, 2), (6, 11)):
        x, y = torch.randn(first, 6), torch.randn(second, 6)
        assert_same(compiled(x, y), function(x, y))
    assert _graphs() == 1


def test_gradients_of_results_whose_sizes_are_expressions():
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (torch.cat([x, y])[1:].tanh() * x.shape[0]).repeat(2, 1)

    compiled = torch.compile(function, backend="turbine_lite_cpu", fullgraph=True, dynamic=True)
    for first, second in ((4, 3), (5, 8), (9, 2)):
        leaves = [torch.randn(first, 6, requires_grad=True), torch.randn(second, 6, requires_grad=True)]
        want, got = function(*leaves), compiled(*leaves)
        assert_same(got, want)
        assert_same(torch.autograd.grad(got.exp().sum(), leaves), torch.autograd.grad(want.exp().sum(), leaves))
    assert _graphs() == 2
