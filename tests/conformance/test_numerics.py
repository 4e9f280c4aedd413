"""Eager's values where a compiler's differ easily: NaN, infinities, signed zeros, powers, half precision, rounding."""

from __future__ import annotations

import math

import pytest
import torch

from tests.helpers import assert_same, compiled

NAN, INF = float("nan"), float("inf")
SPECIAL = torch.tensor([1.0, NAN, 3.0, -1.0, INF, -INF, 0.0, -0.0])
OTHER = torch.tensor([NAN, 2.0, 1.0, -1.0, 0.0, INF, -0.0, 0.0])

ONE = {
    "clamp": lambda x: x.clamp(0.0, 2.0),
    "clamp_min": lambda x: x.clamp(min=0.5),
    "clamp_max": lambda x: x.clamp(max=0.5),
    "hardtanh": torch.nn.functional.hardtanh,
    "relu6": torch.nn.functional.relu6,
    "relu": torch.relu,
    "isfinite": torch.isfinite,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "itself": lambda x: (x == x, x != x, x <= x, x >= x),
    "where_finite": lambda x: torch.where(x.isfinite(), x, 0.0),
    "nan_to_num": torch.nan_to_num,
    "max": lambda x: (x.max(), x.amax(0), x.max(0)),
    "argmax": lambda x: (x.argmax(), x.argmin()),
    "sort": lambda x: x.sort(),
    "topk": lambda x: x.topk(3),
    "powers": lambda x: tuple(x**p for p in (-4, -3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 4, 5, 7)),
    "power_of": lambda x: 2.0**x,
    "exponentials": lambda x: (x.exp(), x.expm1(), x.sigmoid(), x.tanh(), x.erf()),
    "logarithms": lambda x: (x.log(), x.log1p(), x.log2(), x.sqrt(), x.rsqrt()),
    "softmax": lambda x: x.softmax(0),
    "sign": torch.sign,
    "rounding": lambda x: (x.round(), x.trunc(), x.floor(), x.ceil()),
}
TWO = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "clamp_by": lambda x, y: torch.clamp(x, min=y),
    "compare": lambda x, y: (x == y, x != y, x < y, x >= y),
    "divide": lambda x, y: (x / y, x % y, torch.fmod(x, y), x // y),
    "power": torch.pow,
    "atan2": torch.atan2,
}


def check(function, *arguments, **tolerances):
    assert_same(torch.compile(function, backend="turbine_lite_cpu")(*arguments), function(*arguments), **tolerances)


@pytest.mark.parametrize("name", ONE)
def test_special_values(name):
    check(ONE[name], SPECIAL)


@pytest.mark.parametrize("name", TWO)
def test_special_values_of_two(name):
    check(TWO[name], SPECIAL, OTHER)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_half_precision_are_accumulated_in_float32(dtype):
    x = (torch.rand(3000, generator=torch.Generator().manual_seed(0)) + 0.5).to(dtype)
    tolerance = torch.finfo(dtype).eps
    check(lambda x: (x.sum(), x.mean(), x.view(30, 100).sum(1), x.cumsum(0)[-1]), x, rtol=tolerance)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate):
    x = torch.linspace(-6, 6, 500)
    check(lambda x: torch.nn.functional.gelu(x, approximate=approximate), x, rtol=1e-5, atol=2e-6)


def test_float_scalars_are_rounded_to_nearest():
    x = torch.arange(3.0)
    check(lambda x: ((x + 0.5) * 1.3333333333333333).to(torch.int64), x)
    check(lambda x: x * (1 / 255) + 0.1, x, rtol=0, atol=0)


def test_float_scalars_are_exact_beside_float64():
    check(lambda x: x * 0.1 + 1e-12, torch.arange(3.0, dtype=torch.float64), rtol=1e-15, atol=0)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_integers_wrap_around(dtype):
    limits = torch.iinfo(dtype)
    x = torch.tensor([limits.max, limits.min, -7, 7, 0], dtype=dtype)
    check(lambda x: (x + x, x * 3, x - 5, -x, x // 2, x // -3, x % 3, x.sum(), x.abs()), x)
    check(
        lambda x, y: (x // y, x % y, torch.div(x, y, rounding_mode="trunc")),
        x,
        torch.tensor([2, 3, 3, -2, 5], dtype=dtype),
    )


def test_negative_indices_are_wrapped():
    x, index = torch.arange(12.0).view(4, 3), torch.tensor([-1, 0, -4])
    check(lambda x, i: (x[i], x[:, i % 3], x.index_put((i,), torch.ones(3, 3)), x[i, -1]), x, index)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_norms_of_half_precision_do_not_overflow(dtype):
    x = (torch.randn(4, 50) * 300).to(dtype)

    def program(x):
        return (
            *(x.norm(), x.norm(2, 1), torch.linalg.vector_norm(x, 3, (0, 1)), torch.dist(x, x.flip(0))),
            *(torch.nn.functional.normalize(x, dim=1), torch.cosine_similarity(x, x.flip(0)), x.std(1)),
        )

    assert_same(compiled(program)(x), program(x), rtol=2e-2, atol=2e-3)


_EDGES = [0, 1, -1, 255, 257, -257, 2049, 65504, 65519, 65520, 2**24 + 1, -(2**24) - 3, 16842753, 2**31 - 1, 2**63 - 1]


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64),
        *(torch.float32, torch.float64),
    ],
)
def test_casts_to_half_precision(dtype, half):
    """Natively: from whole numbers to bfloat16 by way of float32, which is where eager rounds first."""
    is_limited = not dtype.is_floating_point and dtype is not torch.bool
    least, most = (torch.iinfo(dtype).min, torch.iinfo(dtype).max) if is_limited else (-math.inf, math.inf)
    x = torch.tensor([value for value in _EDGES if least <= value <= most], dtype=dtype)

    def function(x, scalar):
        return x.to(half), x.to(half) * 2 + 1, scalar.to(half)

    options = {"fallback": "error", "extern": "none"}
    got = torch.compile(function, backend="turbine_lite_cpu", options=options)(x, x[1])
    for one, other in zip(got, function(x, x[1]), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_means_over_volumes_of_half_precision_are_native(half):
    x = torch.randint(0, 8, (1, 2, 4, 8, 6)).to(half)  # the sums are exact, also in eager, which adds in half precision

    def function(x):
        return torch.nn.functional.adaptive_avg_pool3d(x, (2, 4, 3))

    options = {"fallback": "error", "extern": "none"}
    assert_same(torch.compile(function, backend="turbine_lite_cpu", options=options)(x), function(x))
