"""Operators that are left to kernels of PyTorch's libraries: what is fused, and that nothing else changes."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters

from tests.helpers import assert_same
from turbine_lite import compile_graph
from turbine_lite.graph.extern import choose, use_kernels
from turbine_lite.graph.extern.choose import reason_for_kernel
from turbine_lite.runtime.once import WithConstants


@pytest.fixture(autouse=True)
def _small_is_enough(monkeypatch):
    """Kernels are taken for the sizes of these tests, too."""
    monkeypatch.setattr(choose, "LEAST_OPERATIONS", 0)
    monkeypatch.setattr(choose, "LEAST_OPERATIONS_OF_SMALL", 0)


@pytest.fixture
def computed(monkeypatch):
    """How often weights were packed."""
    counts = []
    compute = WithConstants._compute
    monkeypatch.setattr(WithConstants, "_compute", lambda self, t: (counts.append(1), compute(self, t))[1])
    return counts


def _compiled(module, **options):
    return torch.compile(module, backend="turbine_lite_cpu", options={"fallback": "error", **options})


def _kernels() -> int:
    return sum(count for name, count in counters["turbine_lite"].items() if name.endswith(": slower"))


class _Block(nn.Module):
    """A residual block, with statistics that are not those of a new module."""

    def __init__(self, activation=F.relu, width: int = 8, groups: int = 1) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1, stride=2)
        self.second = nn.Conv2d(width, width, 3, padding=1, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.activation = activation
        with torch.no_grad():
            for buffer in (self.norm.running_mean, self.norm.running_var, self.norm.weight, self.norm.bias):
                buffer.copy_(torch.rand(width) + 0.5)

    def forward(self, x):
        x = self.activation(self.first(x))
        return self.activation(self.norm(self.second(x)) + x)


def _images(size: int = 12) -> torch.Tensor:
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))


_ACTIVATIONS = [
    *(F.relu, F.relu6, F.silu, torch.sigmoid, torch.tanh, F.hardswish, F.gelu, F.leaky_relu, F.elu, F.hardsigmoid),
    lambda x: F.gelu(x, approximate="tanh"),
    lambda x: F.hardtanh(x, -0.5, 0.25),
    lambda x: F.leaky_relu(x, 0.3),
]


@pytest.mark.parametrize("activation", _ACTIVATIONS)
def test_activations_are_those_of_eager_for_all_numbers(activation):
    block = _Block(activation).eval()
    x = _images()
    x[0, 0, 0, 0], x[0, 1, 6, 6], x[1, 2, 3, 3] = float("nan"), float("inf"), -float("inf")
    with torch.no_grad():
        assert_same(_compiled(block)(x), block(x), rtol=1e-4, atol=1e-5)
    assert _kernels()


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_a_block_is_two_kernels(groups):
    block = _Block(groups=groups).eval()
    run = _compiled(block)
    with torch.no_grad():
        assert_same(run(_images()), block(_images()), rtol=1e-4, atol=1e-5)
    counts = counters["turbine_lite"]
    # The rest, batch norm, the sum and the activations, is in them; what is left makes the layouts.
    assert counts["nodes native"] == 0
    assert _kernels() >= 1


def test_memory_layouts_are_those_of_eager():
    block = _Block().eval()
    run = _compiled(block)
    with torch.no_grad():
        for x in (_images(), _images().to(memory_format=torch.channels_last)):
            got, expected = run(x), block(x)
            assert got.stride() == expected.stride()
            assert_same(got, expected, rtol=1e-4, atol=1e-5)


def test_views_of_images_that_lie_otherwise():
    conv = nn.Conv2d(3, 8, 3)

    def program(x):
        y = conv(x)
        rows = y.view(2, 8, -1)
        return rows, y.flatten(2).transpose(1, 2).sum(-1), y.permute(0, 2, 3, 1), y[:, 2:4], y.as_strided((4,), (3,))

    with torch.no_grad():
        for got, expected in zip(_compiled(program)(_images()), program(_images()), strict=True):
            assert got.stride() == expected.stride()
            assert_same(got, expected, rtol=1e-4, atol=1e-5)


def test_random_numbers_are_drawn_in_the_order_of_eager():
    conv = nn.Conv2d(3, 8, 3)

    def program(x):
        return F.dropout(conv(x).relu(), 0.5) + torch.rand_like(conv(x))

    with torch.no_grad():
        torch.manual_seed(3)
        expected = program(_images())
        run = _compiled(program)
        torch.manual_seed(3)
        assert_same(run(_images()), expected, rtol=1e-4, atol=1e-5)


def test_images_of_one_channel():
    conv = nn.Conv2d(1, 8, 3)
    x = torch.randn(1, 1, 28, 28)
    with torch.no_grad():
        got, expected = _compiled(lambda x: conv(x).relu() * 2)(x), conv(x).relu() * 2
    assert got.stride() == expected.stride()
    assert_same(got, expected, rtol=1e-4, atol=1e-5)


def _scale_in_place(block):
    with torch.no_grad():
        block.second.weight.mul_(2)


def _load_state(block):
    block.load_state_dict({name: value + 1 for name, value in block.state_dict().items()})


def _new_data(block):
    block.first.weight.data = torch.randn_like(block.first.weight)


def _statistics(block):
    block.norm.running_mean.add_(1)


@pytest.mark.parametrize("change", [_scale_in_place, _load_state, _new_data, _statistics])
def test_packed_weights_follow_the_parameters(change, computed):
    block = _Block().eval()
    run = _compiled(block)
    with torch.no_grad():
        for _ in range(3):
            assert_same(run(_images()), block(_images()), rtol=1e-4, atol=1e-5)
        assert len(computed) == 1
        change(block)
        for _ in range(3):
            assert_same(run(_images()), block(_images()), rtol=1e-4, atol=1e-5)
        assert len(computed) == 2


def test_weights_that_always_change_are_packed_on_each_call(computed):
    block = _Block().eval()
    run = _compiled(block)
    with torch.no_grad():
        for _ in range(20):
            _scale_in_place(block)
            block.second.weight.div_(block.second.weight.norm())
            assert_same(run(_images()), block(_images()), rtol=1e-4, atol=1e-5)


def test_first_call_under_inference_mode():
    block = _Block().eval()
    run = _compiled(block)
    with torch.inference_mode():
        run(_images())
    with torch.no_grad():
        assert_same(run(_images()), block(_images()), rtol=1e-4, atol=1e-5)


def test_convolutions_whose_weights_are_arguments():
    x, weight = _images(), torch.randn(4, 3, 3, 3)
    with torch.no_grad():
        got = _compiled(lambda x, w: F.conv2d(x, w).relu() + 1)(x, weight)
    assert_same(got, F.conv2d(x, weight).relu() + 1, rtol=1e-4, atol=1e-5)
    assert _kernels() == 1


def test_transposed_and_other_ranks():
    modules = (nn.ConvTranspose2d(3, 4, 3, stride=2), nn.Conv1d(3, 4, 3), nn.Conv3d(3, 4, 3))
    inputs = (_images(), torch.randn(2, 3, 9), torch.randn(2, 3, 5, 6, 7))
    for module, x in zip(modules, inputs, strict=True):
        torch._dynamo.reset()
        with torch.no_grad():
            got, expected = _compiled(lambda x, m=module: m(x).relu() * 3)(x), module(x).relu() * 3
        assert got.stride() == expected.stride()
        assert_same(got, expected, rtol=1e-4, atol=1e-5)
    assert _kernels() == 3


@pytest.mark.parametrize("activation", [None, *_ACTIVATIONS])
@pytest.mark.parametrize("bias", [True, False])
def test_matmuls(activation, bias):
    linear = nn.Linear(24, 40, bias=bias)
    x = torch.randn(3, 16, 24)
    x[0, 0, 0], x[1, 1, 1] = float("nan"), float("inf")

    def program(x):
        y = linear(x)
        return y if activation is None else activation(y)

    with torch.no_grad():
        got, expected = _compiled(program)(x), program(x)
    assert got.stride() == expected.stride()
    assert_same(got, expected, rtol=1e-4, atol=1e-5)
    assert _kernels()


def test_a_matmul_that_is_read_twice_is_not_fused_away():
    linear = nn.Linear(24, 40)
    x = torch.randn(32, 24)
    with torch.no_grad():
        got, expected = _compiled(lambda x: (linear(x), F.gelu(linear(x))))(x), (linear(x), F.gelu(linear(x)))
    for one, other in zip(got, expected, strict=True):
        assert_same(one, other, rtol=1e-4, atol=1e-5)


def test_attention():
    q, k, v = (torch.randn(2, 4, 16, 8) for _ in range(3))
    mask = torch.rand(2, 1, 16, 16) > 0.3

    def program(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(2, 16, 32) * 2

    with torch.no_grad():
        assert_same(_compiled(program)(q, k, v), program(q, k, v), rtol=1e-4, atol=1e-5)
    assert _kernels() == 1


def test_attention_whose_sums_are_read_too():
    q = torch.randn(2, 4, 16, 8)
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    run = torch.compile(lambda q: attention(q * 2, q, q), backend="turbine_lite_cpu", options={"extern": "none"})
    with torch.no_grad():
        for got, expected in zip(run(q), attention(q * 2, q, q), strict=True):
            assert_same(got, expected, rtol=1e-4, atol=1e-5)
    assert counters["turbine_lite"]["nodes eager"] == 0


def test_dynamic_sizes():
    block = _Block().eval()
    run = torch.compile(block, backend="turbine_lite_cpu", dynamic=True, options={"fallback": "error"})
    with torch.no_grad():
        for size in (12, 16, 20):
            assert_same(run(_images(size)), block(_images(size)), rtol=1e-4, atol=1e-5)
    assert _kernels()


def test_a_step_of_training():
    block = _Block()
    run = _compiled(block)
    block(_images()).sum().backward()
    expected = [parameter.grad.clone() for parameter in block.parameters()]
    block.zero_grad()
    run(_images()).sum().backward()
    for parameter, gradient in zip(block.parameters(), expected, strict=True):
        assert_same(parameter.grad, gradient, rtol=1e-3, atol=1e-4)
    assert counters["turbine_lite"]["eager aten.convolution_backward.default: slower"] == 2


def test_what_the_caller_gets_is_his_to_write():
    """A result that is computed from parameters alone is a new tensor on each call."""
    conv = nn.Conv2d(3, 8, 3)
    run = _compiled(lambda x: (conv(x), conv.weight * 2))
    with torch.no_grad():
        run(_images())[1].zero_()
        assert_same(run(_images())[1], conv.weight * 2)


def test_the_option():
    linear = nn.Linear(64, 64)
    x = torch.randn(32, 64)
    with torch.no_grad():
        for extern, kernels in (("none", 0), ("auto", 1), ("all", 1)):
            torch._dynamo.reset()
            counters.clear()
            assert_same(_compiled(linear, extern=extern)(x), linear(x), rtol=1e-4, atol=1e-5)
            assert _kernels() == kernels


def test_small_calls_stay_and_the_reason_tells_the_ratio(monkeypatch):
    monkeypatch.setattr(choose, "LEAST_OPERATIONS", 1_000_000)
    graph = torch.fx.Graph()
    with torch._subclasses.FakeTensorMode():
        nodes = {}
        for size in (8, 512):
            x = graph.placeholder(f"x{size}")
            x.meta["val"] = torch.empty(size, size)
            node = nodes[size] = graph.call_function(torch.ops.aten.mm.default, (x, x))
            node.meta["val"] = torch.empty(size, size)
    assert reason_for_kernel(nodes[8], "auto") is None
    assert reason_for_kernel(nodes[8], "all") is not None
    assert reason_for_kernel(nodes[512], "none") is None
    reason = reason_for_kernel(nodes[512], "auto")
    assert reason is not None
    assert reason.kind == "slower"
    assert re.search(r"a matmul is slower in IREE: measured \d+\.\dx", reason.text)


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
        got = _compiled(lambda x: _SUMS[name](linear, x), extern="all")(x)
        assert_same(got, _SUMS[name](linear, x))
    assert _kernels()


def test_a_residual_sum_is_in_the_kernel():
    linear = nn.Linear(8, 8)
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        _compiled(lambda x: x + linear(x), extern="all")(x)
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
        got, want = _compiled(lambda x: function(linear, x), extern="all")(x), function(linear, x)
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
    gm = _captured(program, x)
    changed = use_kernels(gm, "all", pack=True)
    views = [node for node in changed.graph.nodes if node.target is torch.ops.aten.view.default]
    assert len(views) == 2
    with torch.no_grad():
        assert_same(_compiled(program, extern="all")(x), program(x))


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
        got, want = _compiled(lambda x: program(linear(x)), extern="all")(x), program(linear(x))
    assert_same(got, want)
    if isinstance(got, tuple):
        assert got[0] is not got[1]


def test_a_region_after_a_linear_layer_of_three_dimensions():
    linear, x = nn.Linear(8, 8), torch.randn(2, 3, 8)
    with torch.no_grad():
        got = _compiled(lambda x: (linear(x).sin() * 2 + 1).exp(), extern="all")(x)
        assert_same(got, (linear(x).sin() * 2 + 1).exp())
    assert counters["turbine_lite"]["executables"] == 1


def test_attention_reads_heads_where_they_are():
    linear, x = nn.Linear(16, 48), torch.randn(2, 5, 16)

    def program(x):
        q, k, v = (part.view(2, 5, 4, 4).transpose(1, 2).contiguous() for part in linear(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 5, 16) * 2

    with torch.no_grad():
        changed = use_kernels(_captured(program, x), "all", pack=True)
        assert not any(node.target is torch.ops.aten.clone.default for node in changed.graph.nodes)
        assert_same(_compiled(program, extern="all")(x), program(x))


def test_attention_of_copies_lies_in_memory_as_in_eager():
    x = torch.randn(2, 5, 4, 4)

    def program(x):
        y = F.scaled_dot_product_attention(*[x.transpose(1, 2).contiguous()] * 3)
        return y, y.view(-1)

    with torch.no_grad():
        assert_same(_compiled(program, extern="all")(x), program(x))


_PADS = {
    "symmetric": ((1, 1, 2, 2), 0),
    "width alone": ((2, 2), 0),
    "none": ((0, 0, 0, 0), 0),
    "one side": ((0, 1, 0, 1), 0),
    "not zero": ((1, 1, 1, 1), 0.5),
    "cropped": ((-1, -1, 1, 1), 0),
    "channels, too": ((1, 1, 1, 1, 1, 1), 0),
}


@pytest.mark.parametrize("name", _PADS)
def test_padding_before_a_convolution(name):
    pads, value = _PADS[name]
    conv = nn.Conv2d(5 if name == "channels, too" else 3, 8, 3, padding=(1, 0), stride=2)
    x = torch.randn(2, 3, 9, 10)

    def program(x):
        padded = F.pad(x, pads, value=value)
        return conv(padded), padded[0] if name == "none" else padded.sum()

    with torch.no_grad():
        assert_same(_compiled(program)(x), program(x), rtol=1e-4, atol=1e-5)
        graph = use_kernels(_captured(lambda x: conv(F.pad(x, pads, value=value)), x), "all", pack=True).graph
    is_folded = not any(node.target is torch.ops.aten.constant_pad_nd.default for node in graph.nodes)
    assert is_folded == (name in ("symmetric", "width alone", "none"))


def _captured(program, *arguments):
    """The inference graph that AOTAutograd makes."""
    graphs = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile_graph, "use_kernels", lambda gm, *a, **k: (graphs.append(gm), gm)[1])
        with torch.no_grad():
            _compiled(program)(*arguments)
    return graphs[0]
