"""Element-wise functions over all magnitudes, to a relative error: an absolute one hides what small arguments lose."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from tests.helpers import compiled

FUNCTIONS = {
    "waves": (torch.sin, torch.cos, torch.tan, torch.sinc),
    "hyperbolic": (torch.sinh, torch.cosh, torch.tanh, torch.asinh, torch.acosh, torch.atanh),
    "inverse": (torch.asin, torch.acos, torch.atan, torch.rsqrt, torch.reciprocal, torch.sqrt),
    "exponential": (torch.exp, torch.exp2, torch.expm1, torch.log, torch.log2, torch.log10, torch.log1p),
    "error": (torch.erf, torch.erfc, torch.sigmoid, torch.special.erfcx, F.softplus, F.logsigmoid),
    "activations": (F.elu, F.selu, F.celu, F.relu6, F.hardswish, F.softsign, F.leaky_relu),
}


def arguments() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.cat(
        [
            10 ** (torch.rand(3000, generator=generator) * 74 - 37),
            torch.rand(1000, generator=generator) * 4,
            torch.rand(500, generator=generator) * 80,
            1 + torch.randn(500, generator=generator) * 1e-3,
        ]
    )
    return torch.cat([sizes, -sizes, torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan])])


def without_subnormal(values: torch.Tensor) -> torch.Tensor:
    return torch.where(values.abs() < 1.2e-38, 0.0, values)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_relative_error(name):
    x = arguments()

    def program(x):
        return [function(x) for function in FUNCTIONS[name]]

    for function, got, want in zip(FUNCTIONS[name], compiled(program)(x), program(x), strict=True):
        torch.testing.assert_close(
            without_subnormal(got),
            without_subnormal(want),
            rtol=2e-5 if function is not torch.sinc else 1e-3,  # whose zeros are what rounding leaves
            atol=0.0,
            equal_nan=True,
            msg=lambda text, function=function: f"{function.__name__}: {text}",
        )


def test_division_with_remainder():
    """A rounded quotient may be the next integer: 1 // 0.1 is 9."""
    generator = torch.Generator().manual_seed(0)
    a = torch.cat(
        [
            torch.tensor([1.0, 1e8, 7.5, -7.5, 5.0, 1e30, -1.0, 3.0, 0.3, -0.0, 0.0, math.inf, 2.0, math.nan]),
            torch.randn(500, generator=generator) * 10,
            torch.randint(-50, 50, (500,), generator=generator) / 10,
        ]
    )
    b = torch.cat(
        [
            torch.tensor([0.1, 0.3, 2.0, 2.0, 0.0, 3.0, 0.1, -0.1, 0.1, 2.0, -2.0, 2.0, -math.inf, 1.0]),
            torch.randn(500, generator=generator),
            torch.randint(-20, 20, (500,), generator=generator) / 10,
        ]
    )

    def program(a, b):
        return (
            *(torch.fmod(a, b), torch.remainder(a, b), torch.floor_divide(a, b), a % 0.1, a // 0.1, torch.fmod(a, 0.1)),
            *(torch.div(a, b, rounding_mode="floor"), torch.div(a, b, rounding_mode="trunc"), 3.0 // b, 1.0 % b),
        )

    for got, want in zip(compiled(program)(a, b), program(a, b), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)
        assert torch.equal(got.signbit() & (got == 0), want.signbit() & (want == 0))


def test_casts_to_half_precision_round():
    """IREE leaves out casts that undo each other."""
    x = torch.cat(
        [arguments(), torch.tensor([65504.0, 65519.0, 65520.0, 65536.0, 6e-8, 2.9e-8, 3e-8, 6.1e-5, 6.09e-5])]
    )

    def program(x):
        return (
            *(x.bfloat16().float() - x, x.half().float() - x, (x.bfloat16() * 3).float(), (x.half() * 3).float()),
            *((x.bfloat16().float() * 1.1).bfloat16() * x.bfloat16(), x.half(), x.bfloat16()),
        )

    for got, want in zip(compiled(program)(x), program(x), strict=True):
        assert torch.equal(without_subnormal(got).nan_to_num(1e9), without_subnormal(want).nan_to_num(1e9))
