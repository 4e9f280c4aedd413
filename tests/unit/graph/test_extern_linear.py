"""Linear layers and attention in kernels of PyTorch's libraries, and what lies between them."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters

from tests.helpers import assert_same
from tests.unit.graph.kernels import captured, count_kernels, run_compiled
from turbine_lite.graph.extern import kernels, use_kernels
from turbine_lite.graph.extern import linear as extern_linear

pytestmark = pytest.mark.usefixtures("small_is_enough")


_SUMS = {
    "residual": lambda linear, x: x + linear(x),
    "residual on the right": lambda linear, x: linear(x) + x,
    "with relu": lambda linear, x: F.relu(x + linear(x)),
    "transposed": lambda linear, x: linear(x) + x.transpose(0, 1).contiguous().transpose(0, 1),
    "twice itself": lambda linear, x: (y := linear(x)) + y,
    "also a result": lambda linear, x: ((y := linear(x)), x + y),
    "scaled": lambda linear, x: torch.add(x, linear(x), alpha=2),
    "of two": lambda linear, x: linear(x) + linear(x * 2),
    "broadcast": lambda linear, x: linear(x) + x[:, :1],
    "after gelu": lambda linear, x: F.gelu(linear(x)) + x,
    "integers": lambda linear, x: linear(x) + x.to(torch.int32),
}


@pytest.mark.parametrize("shape", [(4, 8), (2, 3, 8)])
@pytest.mark.parametrize("name", _SUMS)
def test_sums_with_a_linear_layer(name, shape):
    linear = nn.Linear(8, 8)
    x = torch.randn(*shape)
    with torch.no_grad():
        got = run_compiled(lambda x: _SUMS[name](linear, x), extern="all")(x)
        assert_same(got, _SUMS[name](linear, x))
    assert count_kernels()


def test_a_residual_sum_is_in_the_kernel():
    linear = nn.Linear(8, 8)
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        run_compiled(lambda x: x + linear(x), extern="all")(x)
    counts = counters["turbine_lite"]
    assert counts["nodes native"] == 0
    assert counts["nodes eager"] == 1


_COPIES = {
    "of dropout": lambda linear, x: x + F.dropout(linear(x), 0.5, training=False),
    "returned": lambda linear, x: ((y := linear(x)), y.clone()),
    "a view of it returned": lambda linear, x: ((y := linear(x)), y.clone()[1:]),
    "of an argument": lambda linear, x: (x.clone(), linear(x.clone()).clone() + x.clone()),
    "read by a view": lambda linear, x: linear(x).clone().transpose(0, 1).sum(0),
    "in another layout": lambda linear, x: linear(x).t().clone(memory_format=torch.contiguous_format).view(-1),
}


@pytest.mark.parametrize("name", _COPIES)
def test_copies_are_dropped_where_nobody_can_tell(name):
    linear, x = nn.Linear(4, 4), torch.randn(4, 4)
    function = _COPIES[name]
    with torch.no_grad():
        got, want = run_compiled(lambda x: function(linear, x), extern="all")(x), function(linear, x)
        assert_same(got, want)
        if isinstance(got, tuple):  # the caller may write to one result
            got[0].zero_()
            assert_same(got[1], want[1])
            assert x.abs().sum() > 0
    assert counters["turbine_lite"]["nodes native"] == 0
    if name == "of dropout":
        assert counters["turbine_lite"]["nodes eager"] == 1


def test_views_between_kernels_are_few():
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)

    def program(x):
        y = first(x)
        return second(y.view(6, 8).view(2, 3, 8).view(3, 2, 8)).view(2, 3, 2, 4).transpose(1, 2) + 0

    x = torch.randn(2, 3, 8)
    gm = captured(program, x)
    changed = use_kernels(gm, "all", pack=True)
    views = [node for node in changed.graph.nodes if node.target is torch.ops.aten.view.default]
    assert len(views) == 2
    with torch.no_grad():
        assert_same(run_compiled(program, extern="all")(x), program(x))


@pytest.mark.parametrize(
    "program",
    [
        lambda y: (y.view(6, 8), y.view(6, 8)),
        lambda y: (y, y.view(2, 3, 8)),
        lambda y: (y.view(2, 3, 8).view(-1), y.transpose(0, 1).view(3, 2, 2, 4).sum(-1)),
        lambda y: y[0].view(24) + y[0].view(24) * y[1].view(24),
        lambda y: y.expand(2, 2, 3, 8).reshape(-1).view(4, 24) * 2,
        lambda y: y[:, 1:].view(2, 2, 2, 4) + y[:, 1:].view(2, 2, 2, 4),
    ],
)
def test_views_of_results_stay_the_callers(program):
    linear, x = nn.Linear(8, 8), torch.randn(2, 3, 8)
    with torch.no_grad():
        got, want = run_compiled(lambda x: program(linear(x)), extern="all")(x), program(linear(x))
    assert_same(got, want)
    if isinstance(got, tuple):
        assert got[0] is not got[1]


def test_a_region_after_a_linear_layer_of_three_dimensions():
    linear, x = nn.Linear(8, 8), torch.randn(2, 3, 8)
    with torch.no_grad():
        got = run_compiled(lambda x: (linear(x).sin() * 2 + 1).exp(), extern="all")(x)
        assert_same(got, (linear(x).sin() * 2 + 1).exp())
    assert counters["turbine_lite"]["executables"] == 1


def test_attention_reads_heads_where_they_are():
    linear, x = nn.Linear(16, 48), torch.randn(2, 5, 16)

    def program(x):
        q, k, v = (part.view(2, 5, 4, 4).transpose(1, 2).contiguous() for part in linear(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 5, 16) * 2

    with torch.no_grad():
        changed = use_kernels(captured(program, x), "all", pack=True)
        assert not any(node.target is torch.ops.aten.clone.default for node in changed.graph.nodes)
        assert_same(run_compiled(program, extern="all")(x), program(x))


def test_attention_of_copies_lies_in_memory_as_in_eager():
    x = torch.randn(2, 5, 4, 4)

    def program(x):
        y = F.scaled_dot_product_attention(*[x.transpose(1, 2).contiguous()] * 3)
        return y, y.view(-1)

    with torch.no_grad():
        assert_same(run_compiled(program, extern="all")(x), program(x))


_AFTER = {
    "nothing": lambda y, x: y,
    "relu": lambda y, x: F.relu(y),
    "clamp": lambda y, x: y.clamp(-0.5, 0.25),
    "silu": lambda y, x: F.silu(y),
    "sigmoid": lambda y, x: torch.sigmoid(y),
    "tanh": lambda y, x: torch.tanh(y),
    "hardswish": lambda y, x: F.hardswish(y),
    "gelu": lambda y, x: F.gelu(y),
    "gelu by tanh": lambda y, x: F.gelu(y, approximate="tanh"),
    "leaky relu": lambda y, x: F.leaky_relu(y, 0.3),
    "sum and relu": lambda y, x: F.relu(y + x),
}


@pytest.mark.parametrize("by_mkl", [False, True])
@pytest.mark.parametrize("after", _AFTER)
@pytest.mark.parametrize("shape", [(4, 8), (2, 3, 8)])
def test_either_library(monkeypatch, shape, after, by_mkl):
    if by_mkl and not kernels.HAS_MKL:
        pytest.skip("this build of PyTorch has no MKL")
    monkeypatch.setattr(extern_linear, "is_by_intel", lambda: by_mkl)
    linear = nn.Linear(8, 8)

    def function(x):
        return _AFTER[after](linear(x), x)

    with torch.no_grad():
        run = run_compiled(function, extern="all")
        for step in range(3):
            x = torch.randn(*shape)
            x.view(-1)[0] = float("nan") if step == 1 else 1.0
            assert_same(run(x), function(x))
            linear.weight.mul_(1.5)  # packed anew
    assert count_kernels()


def test_who_multiplies(monkeypatch):
    calls = []
    for name in ("linear", "linear_by_mkl"):
        real = getattr(kernels, name)

        def noted(*args, real=real, name=name):
            calls.append(name)
            return real(*args)

        monkeypatch.setattr(kernels, name, functools.wraps(real)(noted))
    for by_intel in (False, True):
        torch._dynamo.reset()
        monkeypatch.setattr(extern_linear, "is_by_intel", lambda by_intel=by_intel: by_intel)
        with torch.no_grad():
            run_compiled(nn.Linear(8, 8), extern="all")(torch.randn(4, 8))
    assert calls == ["linear", "linear_by_mkl" if kernels.HAS_MKL else "linear"]


_VECTORS = {
    "with bias": lambda x, weight, bias: F.linear(x, weight, bias),
    "without bias": lambda x, weight, bias: F.linear(x, weight),
    "the weight is an argument, transposed by the program": lambda x, weight, bias: x.reshape(1, 8) @ weight.t(),
    "of what two read": lambda x, weight, bias: (F.linear(x, weight), F.linear(x, weight + 1, bias)),
    "returned in both shapes": lambda x, weight, bias: ((y := F.linear(x, weight)), y.view(-1)),
    "bias of two dimensions": lambda x, weight, bias: torch.addmm(bias[None], x.reshape(1, 8), weight.t()),
    "scaled": lambda x, weight, bias: torch.addmm(bias, x.reshape(1, 8), weight.t(), alpha=2),
    "transposed argument": lambda x, weight, bias: F.linear(x.reshape(8, 1).t(), weight),
}


@pytest.mark.parametrize("shape", [(1, 8), (1, 1, 8)])
@pytest.mark.parametrize("name", _VECTORS)
def test_matmuls_with_a_vector(name, shape):
    function = _VECTORS[name]
    x, weight, bias = torch.randn(*shape), torch.randn(4, 8), torch.randn(4)
    with torch.no_grad():
        assert_same(run_compiled(function, extern="all")(x, weight, bias), function(x, weight, bias))
    assert count_kernels()


def test_a_matmul_with_a_vector_takes_the_views_into_one_call():
    layer = nn.Linear(8, 4)
    gm = captured(layer, torch.randn(1, 1, 8))
    calls = [node.target for node in use_kernels(gm, "all", pack=True).graph.nodes if node.op == "call_function"]
    assert calls == [torch.ops.aten.linear.default]
