"""Trigonometric and hyperbolic functions, good to float32's precision for all arguments.

IREE's sine has an absolute error that grows with the argument (0.1 at 10^7, and beyond that no number at all) and that
is larger than a small argument itself. Here 2/pi is multiplied as an integer, of which no more bits are needed than
those that make up the quadrant and the angle in it (M. Payne and R. Hanek, "Radian reduction for trigonometric
functions", SIGNUM Newsletter 18, 1983). The polynomials are those of S. Moshier's Cephes library.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import mpmath
import torch
from torch import Tensor

from turbine_lite.graph.expansions.bessel import horner
from turbine_lite.graph.expansions.expansion import Expansion, in_float32, is_not_float64

__all__ = ["EXPANSIONS"]

aten = torch.ops.aten

_SINE = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
_COSINE = (4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)

# Quadrants are counted in fixed point, with this many bits after the point.
_BITS = 62


@functools.cache
def _windows() -> tuple[tuple[float, float, int], ...]:
    """From which argument on, its scale to an integer of 31 bits, and 2/pi over that scale, modulo 4 quadrants."""
    windows = []
    with mpmath.workprec(400):
        for shift in (23, 15, 7, *range(0, -105, -8)):
            factor = int(mpmath.nint(2 / mpmath.pi * mpmath.mpf(2) ** (_BITS - shift))) % 2**64
            windows.append((2.0 ** (23 - shift), 2.0**shift, factor - 2**64 if factor >= 2**63 else factor))
    return tuple(windows)


def _reduced(x: Tensor) -> tuple[Tensor, Tensor]:
    """The number of the quadrant modulo 4, and the angle in it, from -pi/4 to pi/4."""
    size = x.abs()
    (_, scale, factor), *further = _windows()
    scales, factors = torch.full_like(x, scale), torch.full_like(x, factor, dtype=torch.int64)
    for start, scale, factor in further:
        scales = torch.where(size >= start, scale, scales)
        factors = torch.where(size >= start, factor, factors)
    product = (torch.where(x.isfinite(), x, 0.0) * scales).to(torch.int32).to(torch.int64) * factors
    rounded = product + 2 ** (_BITS - 1)
    quadrant = (rounded >> _BITS).to(torch.int32)
    fraction = (rounded & (2**_BITS - 1)) - 2 ** (_BITS - 1)
    # In two halves: there are no vector instructions between 64-bit integers and float32 on most CPUs.
    high, low = (fraction >> 31).to(torch.int32), (fraction & (2**31 - 1)).to(torch.int32)
    angle = high.to(x.dtype) * (math.pi / 2 * 2.0 ** (31 - _BITS)) + low.to(x.dtype) * (math.pi / 2 * 2.0**-_BITS)
    is_small = size < math.pi / 4
    return torch.where(is_small, 0, quadrant), torch.where(is_small, x, angle)


def _sine_and_cosine(angle: Tensor) -> tuple[Tensor, Tensor]:
    square = angle * angle
    sine = angle + angle * square * horner(square, _SINE)
    return sine, 1 - 0.5 * square + square * square * horner(square, _COSINE)


def _wave(shift: int) -> Callable[[Tensor], Tensor]:
    def wave(x: Tensor) -> Tensor:
        quadrant, angle = _reduced(x)
        sine, cosine = _sine_and_cosine(angle)
        quadrant = quadrant + shift
        result = torch.where((quadrant & 1) == 0, sine, cosine)
        result = torch.where((quadrant & 2) == 0, result, -result)
        return torch.where(x.isfinite(), result, math.nan)

    return wave


_sin, _cos = in_float32(_wave(0)), in_float32(_wave(1))


@in_float32
def _tan(x: Tensor) -> Tensor:
    quadrant, angle = _reduced(x)
    sine, cosine = _sine_and_cosine(angle)
    result = torch.where((quadrant & 1) == 0, sine / cosine, -cosine / sine)
    return torch.where(x.isfinite(), result, math.nan)


def _with_sign_of(x: Tensor, size: Tensor) -> Tensor:
    return torch.where(x < 0, -size, torch.where(x == 0, x, size))


@in_float32
def _sinh(x: Tensor) -> Tensor:
    size = x.abs()
    less_one = torch.expm1(size)
    result = 0.5 * torch.where(size > 20, size.exp(), less_one + less_one / (less_one + 1))
    return _with_sign_of(x, result)


@in_float32
def _asinh(x: Tensor) -> Tensor:
    size = x.abs()
    square = size * size
    result = torch.log1p(size + square / (1 + (square + 1).sqrt()))
    return _with_sign_of(x, torch.where(size > 1e9, size.log() + math.log(2), result))


@in_float32
def _acosh(x: Tensor) -> Tensor:
    above = x - 1
    result = torch.log1p(above + (above * (x + 1)).sqrt())
    return torch.where(x < 1, math.nan, torch.where(x > 1e9, x.log() + math.log(2), result))


@in_float32
def _atanh(x: Tensor) -> Tensor:
    size = x.abs()
    result = 0.5 * torch.log1p(2 * size / (1 - size))
    return torch.where(size > 1, math.nan, _with_sign_of(x, torch.where(size == 1, math.inf, result)))


EXPANSIONS = {
    aten.sin.default: Expansion(_sin, is_not_float64),
    aten.cos.default: Expansion(_cos, is_not_float64),
    aten.tan.default: Expansion(_tan, is_not_float64),
    aten.sinh.default: Expansion(_sinh, is_not_float64),
    aten.asinh.default: Expansion(_asinh, is_not_float64),
    aten.acosh.default: Expansion(_acosh, is_not_float64),
    aten.atanh.default: Expansion(_atanh, is_not_float64),
}
