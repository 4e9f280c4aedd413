"""Operators that are left to kernels of PyTorch's libraries: what is fused, and that nothing else changes."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters

from tests.helpers import assert_same
from tests.unit.graph.kernels import captured, count_kernels, run_compiled
from turbine_lite.graph.extern import choose, use_kernels
from turbine_lite.graph.extern.choose import reason_for_kernel
from turbine_lite.runtime.once import WithConstants

pytestmark = pytest.mark.usefixtures("small_is_enough")


@pytest.fixture
def computed(monkeypatch):
    """How often weights were packed."""
    counts = []
    compute = WithConstants._compute
    monkeypatch.setattr(WithConstants, "_compute", lambda self, t: (counts.append(1), compute(self, t))[1])
    return counts


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
        assert_same(run_compiled(block)(x), block(x), rtol=1e-4, atol=1e-5)
    assert count_kernels()


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_a_block_is_two_kernels(groups):
    block = _Block(groups=groups).eval()
    run = run_compiled(block)
    with torch.no_grad():
        assert_same(run(_images()), block(_images()), rtol=1e-4, atol=1e-5)
    counts = counters["turbine_lite"]
    # The rest, batch norm, the sum and the activations, is in them; what is left makes the layouts.
    assert counts["nodes native"] == 0
    assert count_kernels() >= 1


def test_memory_layouts_are_those_of_eager():
    block = _Block().eval()
    run = run_compiled(block)
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
        for got, expected in zip(run_compiled(program)(_images()), program(_images()), strict=True):
            assert got.stride() == expected.stride()
            assert_same(got, expected, rtol=1e-4, atol=1e-5)


def test_random_numbers_are_drawn_in_the_order_of_eager():
    conv = nn.Conv2d(3, 8, 3)

    def program(x):
        return F.dropout(conv(x).relu(), 0.5) + torch.rand_like(conv(x))

    with torch.no_grad():
        torch.manual_seed(3)
        expected = program(_images())
        run = run_compiled(program)
        torch.manual_seed(3)
        assert_same(run(_images()), expected, rtol=1e-4, atol=1e-5)


def test_images_of_one_channel():
    conv = nn.Conv2d(1, 8, 3)
    x = torch.randn(1, 1, 28, 28)
    with torch.no_grad():
        got, expected = run_compiled(lambda x: conv(x).relu() * 2)(x), conv(x).relu() * 2
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
    run = run_compiled(block)
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
    run = run_compiled(block)
    with torch.no_grad():
        for _ in range(20):
            _scale_in_place(block)
            block.second.weight.div_(block.second.weight.norm())
            assert_same(run(_images()), block(_images()), rtol=1e-4, atol=1e-5)


def test_first_call_under_inference_mode():
    block = _Block().eval()
    run = run_compiled(block)
    with torch.inference_mode():
        run(_images())
    with torch.no_grad():
        assert_same(run(_images()), block(_images()), rtol=1e-4, atol=1e-5)


def test_convolutions_whose_weights_are_arguments():
    x, weight = _images(), torch.randn(4, 3, 3, 3)
    with torch.no_grad():
        got = run_compiled(lambda x, w: F.conv2d(x, w).relu() + 1)(x, weight)
    assert_same(got, F.conv2d(x, weight).relu() + 1, rtol=1e-4, atol=1e-5)
    assert count_kernels() == 1


def test_transposed_and_other_ranks():
    modules = (nn.ConvTranspose2d(3, 4, 3, stride=2), nn.Conv1d(3, 4, 3), nn.Conv3d(3, 4, 3))
    inputs = (_images(), torch.randn(2, 3, 9), torch.randn(2, 3, 5, 6, 7))
    for module, x in zip(modules, inputs, strict=True):
        torch._dynamo.reset()
        with torch.no_grad():
            got, expected = run_compiled(lambda x, m=module: m(x).relu() * 3)(x), module(x).relu() * 3
        assert got.stride() == expected.stride()
        assert_same(got, expected, rtol=1e-4, atol=1e-5)
    assert count_kernels() == 3


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
        got, expected = run_compiled(program)(x), program(x)
    assert got.stride() == expected.stride()
    assert_same(got, expected, rtol=1e-4, atol=1e-5)
    assert count_kernels()


def test_a_matmul_that_is_read_twice_is_not_fused_away():
    linear = nn.Linear(24, 40)
    x = torch.randn(32, 24)
    with torch.no_grad():
        got, expected = run_compiled(lambda x: (linear(x), F.gelu(linear(x))))(x), (linear(x), F.gelu(linear(x)))
    for one, other in zip(got, expected, strict=True):
        assert_same(one, other, rtol=1e-4, atol=1e-5)


def test_attention():
    q, k, v = (torch.randn(2, 4, 16, 8) for _ in range(3))
    mask = torch.rand(2, 1, 16, 16) > 0.3

    def program(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(2, 16, 32) * 2

    with torch.no_grad():
        assert_same(run_compiled(program)(q, k, v), program(q, k, v), rtol=1e-4, atol=1e-5)
    assert count_kernels() == 1


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
    assert count_kernels()


def test_a_step_of_training():
    block = _Block()
    run = run_compiled(block)
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
    run = run_compiled(lambda x: (conv(x), conv.weight * 2))
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
            assert_same(run_compiled(linear, extern=extern)(x), linear(x), rtol=1e-4, atol=1e-5)
            assert count_kernels() == kernels


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
        assert_same(run_compiled(program)(x), program(x), rtol=1e-4, atol=1e-5)
        graph = use_kernels(captured(lambda x: conv(F.pad(x, pads, value=value)), x), "all", pack=True).graph
    is_folded = not any(node.target is torch.ops.aten.constant_pad_nd.default for node in graph.nodes)
    assert is_folded == (name in ("symmetric", "width alone", "none"))
