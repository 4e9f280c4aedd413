"""Operators that are written out for IREE: eager's values, and natively (``fallback="error"``)."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from tests.helpers import assert_same, compiled

aten = torch.ops.aten

SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 7.25, 20.0, -30.0, math.inf, -math.inf, math.nan])
FINITE = torch.linspace(0.05, 12.0, 40)

UNARY = [
    *(torch.signbit, torch.log10, torch.angle, torch.erfc, torch.special.erfcx, torch.erfinv, torch.special.ndtri),
    *(torch.lgamma, torch.digamma, torch.i0, torch.special.i0e, torch.special.i1, torch.special.i1e),
    *(torch.special.bessel_j0, torch.special.bessel_j1, torch.special.bessel_y0, torch.special.bessel_y1),
    *(torch.special.modified_bessel_i0, torch.special.modified_bessel_k0, torch.special.modified_bessel_k1),
]
BINARY = [torch.copysign, torch.hypot, torch.atan2, torch.fmax, torch.fmin, torch.pow, torch.nextafter]


@pytest.mark.parametrize("function", UNARY, ids=lambda f: f.__name__)
def test_unary(function):
    for x in (SPECIAL, FINITE, torch.tensor(0.3), torch.empty(0, 3)):
        torch._dynamo.reset()
        assert_same(compiled(lambda x: function(x))(x), function(x))


@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.__name__)
def test_binary(function):
    a, b = SPECIAL[:, None], SPECIAL[None]
    assert_same(compiled(lambda a, b: function(a, b))(a, b), function(a, b))
    torch._dynamo.reset()
    zero = torch.tensor(-0.0)
    assert_same(compiled(lambda a, b: function(a, b))(a, zero), function(a, zero))


@pytest.mark.parametrize("function", [torch.hypot, torch.atan2, torch.pow], ids=lambda f: f.__name__)
def test_a_float64_scalar_does_not_widen_a_float32_tensor(function):
    scalar = torch.tensor(2.0, dtype=torch.float64)
    assert_same(compiled(lambda a, b: function(a, b))(FINITE, scalar), function(FINITE, scalar))


@pytest.mark.parametrize("function", [torch.argmax, torch.argmin, torch.max, torch.min], ids=lambda f: f.__name__)
def test_extremes_find_nan(function):
    x = torch.randn(4, 6)
    x[1, 2] = x[1, 4] = math.nan
    for dim in (0, 1):
        torch._dynamo.reset()
        assert_same(compiled(lambda x, dim=dim: function(x, dim))(x), function(x, dim))


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True, return_indices=True),
        lambda x: F.max_pool2d(x, (2, 3), 1, 1, dilation=(1, 2), return_indices=True),
        lambda x: F.max_pool2d(x[0], 2),
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True, divisor_override=5),
        lambda x: F.adaptive_max_pool2d(x, (3, 2), return_indices=True),
        lambda x: F.max_pool3d(x[:, :, None], (1, 2, 2), return_indices=True),
        lambda x: F.avg_pool3d(x[:, :, None], (1, 2, 3), 2),
    ],
)
def test_pooling(pool):
    x = torch.randn(2, 3, 7, 8)
    x[0, 1, 2, 3], x[1, 2] = math.nan, -math.inf
    assert_same(compiled(pool)(x), pool(x))


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter", "ignore:index_reduce")
@pytest.mark.parametrize(
    "write",
    [
        lambda x, s: torch.diagonal_scatter(x, s[0, :4], 0),
        lambda x, s: torch.as_strided_scatter(x, s[:2, :2], (2, 2), (7, 2), 1),
        lambda x, s: torch.as_strided_copy(x, (2, 3), (1, 4), 2),
        lambda x, s: x.put(torch.tensor([0, 5, -1]), s[0, :3]),
        lambda x, s: x.scatter_reduce(0, torch.tensor([[0, 1, 1, 3, 0]]), s[:1], "mean"),
        lambda x, s: x.scatter_reduce(0, torch.tensor([[0, 1, 1, 3, 0]]), s[:1], "mean", include_self=False),
        lambda x, s: x.index_reduce(0, torch.tensor([0, 3, 0]), s[:3], "mean"),
        lambda x, s: x.index_reduce(0, torch.tensor([0, 3, 0]), s[:3], "amax", include_self=False),
        lambda x, s: torch.scatter(x, 1, torch.tensor([[0, 1], [2, 2]]), s[:2, :2], reduce="multiply"),
        lambda x, s: F.pad(x, (-1, 2, 1, -2)),
    ],
)
def test_writes(write):
    x, source = torch.randn(4, 5), torch.randn(4, 5)
    assert_same(compiled(write)(x, source), write(x, source))


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
def test_quantisation_operators():
    from torch.ao.quantization.fx import _decomposed  # noqa: F401  # registers them

    quantized = torch.ops.quantized_decomposed
    x = torch.randn(4, 6) * 3

    def fake_quantize(x):
        levels = quantized.quantize_per_tensor(x, 0.1, 3, -300, 300, torch.int16)
        return quantized.dequantize_per_tensor(levels, 0.1, 3, -300, 300, torch.int16), levels

    assert_same(compiled(fake_quantize)(x), fake_quantize(x))


def test_sums_of_many_numbers():
    x = torch.rand(3, 1024, 2049) + 100

    def statistics(x):
        return x.sum(), x.mean((1, 2)), torch.var(x, (1, 2)), torch.std(x), torch.var_mean(x, (0, 1, 2))

    assert_same(compiled(statistics)(x), statistics(x))


@pytest.mark.parametrize(
    ("shift", "dims"), [(5, 0), (-1, 0), (0, 1), (-9, 1), (13, None), ((1, -2), (0, 1)), ((1, 7), (1, 1))], ids=str
)
def test_roll(shift, dims):
    x = torch.arange(12.0).reshape(3, 4)
    assert_same(compiled(lambda x: x.roll(shift, dims))(x), x.roll(shift, dims))


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
def test_shifts_and_powers_of_integers(dtype):
    x, count = torch.tensor([1, -3, 7, 100], dtype=dtype), torch.tensor([0, 1, torch.iinfo(dtype).bits, 5], dtype=dtype)

    def program(x, count):
        return x << count, x >> count, x << 3, x >> 2, x | 3, x ^ 5, x & 6, x**0, x**1, x**2, x**11

    assert_same(compiled(program)(x, count), program(x, count))


def test_views_of_the_prims_namespace():
    prims = torch.ops.prims

    def program(x):
        return (
            prims.view_of(x) + 1,
            prims.split_dim(x, 1, 2) * 2,
            prims.squeeze(x[None], dimensions=[0]),
            prims.transpose(x, [1, 0]),
        )

    x = torch.arange(12.0).reshape(3, 4)
    assert_same(compiled(program)(x), program(x))
