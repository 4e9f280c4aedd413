"""Bessel functions by rational and polynomial approximations, good to float32's precision.

Sources: M. Abramowitz and I. Stegun, Handbook of Mathematical Functions, 9.8.1-9.8.8, for the modified functions;
J. F. Hart et al., Computer Approximations, as in Numerical Recipes section 6.5, for the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from turbine_lite.graph.expansions.expansion import Expansion, in_float32, is_not_float64

__all__ = ["EXPANSIONS", "horner"]

aten = torch.ops.aten


def horner(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """A polynomial; the coefficient of the lowest power comes first."""
    result = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + coefficient
    return result


_I0 = (1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.0360768, 0.0045813)
_I0_TAIL = (
    *(0.39894228, 0.01328592, 0.00225319, -0.00157565, 0.00916281),
    *(-0.02057706, 0.02635537, -0.01647633, 0.00392377),
)
_I1 = (0.5, 0.87890594, 0.51498869, 0.15084934, 0.02658733, 0.00301532, 0.00032411)
_I1_TAIL = (
    *(0.39894228, -0.03988024, -0.00362018, 0.00163801, -0.01031555),
    *(0.02282967, -0.02895312, 0.01787654, -0.00420059),
)


@in_float32
def _i0e(x: Tensor) -> Tensor:
    x = x.abs()
    near = horner((x / 3.75) ** 2, _I0) * (-x).exp()
    return torch.where(x < 3.75, near, horner(3.75 / x, _I0_TAIL) * x.rsqrt())


@in_float32
def _i0(x: Tensor) -> Tensor:
    x = x.abs()
    tail = horner(3.75 / x, _I0_TAIL) * x.rsqrt() * (x * 0.5).exp() * (x * 0.5).exp()
    return torch.where(x < 3.75, horner((x / 3.75) ** 2, _I0), tail)


@in_float32
def _i1e(x: Tensor) -> Tensor:
    size = x.abs()
    near = horner((size / 3.75) ** 2, _I1) * size * (-size).exp()
    result = torch.where(size < 3.75, near, horner(3.75 / size, _I1_TAIL) * size.rsqrt())
    return torch.where(x < 0, -result, result)


@in_float32
def _i1(x: Tensor) -> Tensor:
    size = x.abs()
    half = (size * 0.5).exp()
    tail = horner(3.75 / size, _I1_TAIL) * size.rsqrt() * half * half
    result = torch.where(size < 3.75, horner((size / 3.75) ** 2, _I1) * size, tail)
    return torch.where(x < 0, -result, result)


_K0 = (-0.57721566, 0.42278420, 0.23069756, 0.03488590, 0.00262698, 0.00010750, 0.00000740)
_K0_TAIL = (1.25331414, -0.07832358, 0.02189568, -0.01062446, 0.00587872, -0.00251540, 0.00053208)
_K1 = (1.0, 0.15443144, -0.67278579, -0.18156897, -0.01919402, -0.00110404, -0.00004686)
_K1_TAIL = (1.25331414, 0.23498619, -0.03655620, 0.01504268, -0.00780353, 0.00325614, -0.00068245)


def _of_positive(x: Tensor, result: Tensor) -> Tensor:
    """Infinity at zero, NaN below."""
    return torch.where(x < 0, math.nan, torch.where(x == 0, math.inf, result))


def _k0_near(x: Tensor) -> Tensor:
    return -(x * 0.5).log() * _i0(x) + horner(x * x * 0.25, _K0)


def _k1_near(x: Tensor) -> Tensor:
    return (x * 0.5).log() * _i1(x) + horner(x * x * 0.25, _K1) / x


@in_float32
def _k0(x: Tensor) -> Tensor:
    return _of_positive(x, torch.where(x <= 2, _k0_near(x), horner(2 / x, _K0_TAIL) * x.rsqrt() * (-x).exp()))


@in_float32
def _k1(x: Tensor) -> Tensor:
    return _of_positive(x, torch.where(x <= 2, _k1_near(x), horner(2 / x, _K1_TAIL) * x.rsqrt() * (-x).exp()))


@in_float32
def _scaled_k0(x: Tensor) -> Tensor:
    return _of_positive(x, torch.where(x <= 2, _k0_near(x) * x.exp(), horner(2 / x, _K0_TAIL) * x.rsqrt()))


@in_float32
def _scaled_k1(x: Tensor) -> Tensor:
    return _of_positive(x, torch.where(x <= 2, _k1_near(x) * x.exp(), horner(2 / x, _K1_TAIL) * x.rsqrt()))


_J0 = (57568490574.0, -13362590354.0, 651619640.7, -11214424.18, 77392.33017, -184.9052456)
_J0_BELOW = (57568490411.0, 1029532985.0, 9494680.718, 59272.64853, 267.8532712, 1.0)
_J1 = (72362614232.0, -7895059235.0, 242396853.1, -2972611.439, 15704.48260, -30.16036606)
_J1_BELOW = (144725228442.0, 2300535178.0, 18583304.74, 99447.43394, 376.9991397, 1.0)
_Y0 = (-2957821389.0, 7062834065.0, -512359803.6, 10879881.29, -86327.92757, 228.4622733)
_Y0_BELOW = (40076544269.0, 745249964.8, 7189466.438, 47447.26470, 226.1030244, 1.0)
_Y1 = (-0.4900604943e13, 0.1275274390e13, -0.5153438139e11, 0.7349264551e9, -0.4237922726e7, 0.8511937935e4)
_Y1_BELOW = (
    *(0.2499580570e14, 0.4244419664e12, 0.3733650367e10, 0.2245904002e8),
    *(0.1020426050e6, 0.3549632885e3, 1.0),
)
_P0 = (1.0, -0.1098628627e-2, 0.2734510407e-4, -0.2073370639e-5, 0.2093887211e-6)
_Q0 = (-0.1562499995e-1, 0.1430488765e-3, -0.6911147651e-5, 0.7621095161e-6, -0.934935152e-7)
_P1 = (1.0, 0.183105e-2, -0.3516396496e-4, 0.2457520174e-5, -0.240337019e-6)
_Q1 = (0.04687499995, -0.2002690873e-3, 0.8449199096e-5, -0.88228987e-6, 0.105787412e-6)
_TWO_OVER_PI = 0.636619772


def _waves(x: Tensor, phase: float, p: Sequence[float], q: Sequence[float]) -> tuple[Tensor, Tensor]:
    """The cosine-like and the sine-like solution for x >= 8."""
    y = 64 / (x * x)
    amplitude = (_TWO_OVER_PI / x).sqrt()
    cosine, sine = (x - phase).cos(), (x - phase).sin()
    first, second = horner(y, p), horner(y, q) * (8 / x)
    return amplitude * (cosine * first - sine * second), amplitude * (sine * first + cosine * second)


@in_float32
def _bessel_j0(x: Tensor) -> Tensor:
    x = x.abs()
    near = horner(x * x, _J0) / horner(x * x, _J0_BELOW)
    return torch.where(x < 8, near, _waves(x, math.pi / 4, _P0, _Q0)[0])


@in_float32
def _bessel_j1(x: Tensor) -> Tensor:
    size = x.abs()
    near = size * horner(x * x, _J1) / horner(x * x, _J1_BELOW)
    result = torch.where(size < 8, near, _waves(size, 3 * math.pi / 4, _P1, _Q1)[0])
    return torch.where(x < 0, -result, result)


@in_float32
def _bessel_y0(x: Tensor) -> Tensor:
    near = horner(x * x, _Y0) / horner(x * x, _Y0_BELOW) + _TWO_OVER_PI * _bessel_j0(x) * x.log()
    result = torch.where(x < 8, near, _waves(x, math.pi / 4, _P0, _Q0)[1])
    return torch.where(x < 0, math.nan, torch.where(x == 0, -math.inf, result))


@in_float32
def _bessel_y1(x: Tensor) -> Tensor:
    near = x * horner(x * x, _Y1) / horner(x * x, _Y1_BELOW) + _TWO_OVER_PI * (_bessel_j1(x) * x.log() - 1 / x)
    result = torch.where(x < 8, near, _waves(x, 3 * math.pi / 4, _P1, _Q1)[1])
    return torch.where(x < 0, math.nan, torch.where(x == 0, -math.inf, result))


@in_float32
def _spherical_bessel_j0(x: Tensor) -> Tensor:
    y = x * x
    near = horner(y, (1.0, -1 / 6, 1 / 120, -1 / 5040))
    return torch.where(x.isinf(), 0.0, torch.where(x.abs() < 0.5, near, x.sin() / x))


EXPANSIONS = {
    op: Expansion(function, is_not_float64)
    for op, function in (
        (aten.i0.default, _i0),
        (aten.special_i0e.default, _i0e),
        (aten.special_i1.default, _i1),
        (aten.special_i1e.default, _i1e),
        (aten.special_modified_bessel_i0.default, _i0),
        (aten.special_modified_bessel_i1.default, _i1),
        (aten.special_modified_bessel_k0.default, _k0),
        (aten.special_modified_bessel_k1.default, _k1),
        (aten.special_scaled_modified_bessel_k0.default, _scaled_k0),
        (aten.special_scaled_modified_bessel_k1.default, _scaled_k1),
        (aten.special_bessel_j0.default, _bessel_j0),
        (aten.special_bessel_j1.default, _bessel_j1),
        (aten.special_bessel_y0.default, _bessel_y0),
        (aten.special_bessel_y1.default, _bessel_y1),
        (aten.special_spherical_bessel_j0.default, _spherical_bessel_j0),
    )
}
