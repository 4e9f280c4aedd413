"""Error and gamma functions, good to float32's precision.

Sources: Numerical Recipes section 6.2 for erfc; M. Giles, Approximating the erfinv function (GPU Computing Gems, 2011);
Stirling's series with the recurrence, Abramowitz and Stegun 6.1.41, 6.3.18 and 6.4.12, for the gamma functions.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from turbine_lite.graph.expansions.bessel import horner
from turbine_lite.graph.expansions.expansion import Expansion, in_float32, is_not_float64, reads_float

__all__ = ["EXPANSIONS"]

aten = torch.ops.aten

_ERFC = (
    *(-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806),
    *(0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277),
)


def _erfcx_of_positive(x: Tensor) -> Tensor:
    t = 1 / (1 + 0.5 * x)
    # The series is for exp(-x^2) times this.
    return t * horner(t, _ERFC).exp()


@in_float32
def _erfc(x: Tensor) -> Tensor:
    size = x.abs()
    result = _erfcx_of_positive(size) * (-size * size).exp()
    return torch.where(x < 0, 2 - result, result)


@in_float32
def _erfcx(x: Tensor) -> Tensor:
    result = _erfcx_of_positive(x.abs())
    return torch.where(x < 0, 2 * (x * x).exp() - result, result)


_GILES_NEAR = (
    *(1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087),
    *(-4.39150654e-06, -3.5233877e-06, 3.43273939e-07, 2.81022636e-08),
)
_GILES_FAR = (
    *(2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773),
    *(-0.00367342844, 0.00134934322, 0.000100950558, -0.000200214257),
)


def _inverse_erf(x: Tensor, w: Tensor) -> Tensor:
    """erfinv(x), where ``w`` is -log((1 - x) (1 + x))."""
    factor = torch.where(w < 5, horner(w - 2.5, _GILES_NEAR), horner(w.sqrt() - 3, _GILES_FAR))
    result = torch.where(x.abs() == 1, x * math.inf, factor * x)
    return torch.where(x.abs() > 1, math.nan, result)


@in_float32
def _erfinv(x: Tensor) -> Tensor:
    return _inverse_erf(x, -((1 - x) * (1 + x)).log())


@in_float32
def _ndtri(p: Tensor) -> Tensor:
    # From p itself: 2 p - 1 has no digits left where p is small.
    return math.sqrt(2) * _inverse_erf(2 * p - 1, -(4 * p * (1 - p)).log())


_SHIFT = 7


def _is_pole(x: Tensor) -> Tensor:
    return (x <= 0) & (x.floor() == x)


def _reduced(x: Tensor) -> Tensor:
    """x less the nearest integer: sin(pi x) loses its digits for large x otherwise."""
    return x - (x + 0.5).floor()


@in_float32
def _lgamma(x: Tensor) -> Tensor:
    positive = torch.where(x < 0.5, 1 - x, x)
    near = positive < _SHIFT
    z = torch.where(near, positive + _SHIFT, positive)
    product = positive
    for k in range(1, _SHIFT):
        product = product * (positive + k)
    inverse = 1 / z
    series = inverse * horner(inverse * inverse, (1 / 12, -1 / 360, 1 / 1260, -1 / 1680))
    result = (z - 0.5) * z.log() - z + 0.5 * math.log(2 * math.pi) + series
    result = result - torch.where(near, product, 1.0).log()
    reflected = math.log(math.pi) - (math.pi * _reduced(x)).sin().abs().log() - result
    result = torch.where(x < 0.5, reflected, result)
    return torch.where(_is_pole(x) | x.isinf(), math.inf, result)


@in_float32
def _digamma(x: Tensor) -> Tensor:
    positive = torch.where(x < 0, 1 - x, x)
    z = positive + _SHIFT
    inverse = 1 / z
    square = inverse * inverse
    result = z.log() - 0.5 * inverse - square * horner(square, (1 / 12, -1 / 120, 1 / 252))
    for k in range(_SHIFT):
        result = result - 1 / (positive + k)
    angle = math.pi * _reduced(x)
    result = torch.where(x < 0, result - math.pi * angle.cos() / angle.sin(), result)
    at_zero = -math.inf * torch.copysign(torch.ones_like(x), x)
    result = torch.where((x < 0) & (x.floor() == x), math.nan, result)
    return torch.where(x == 0, at_zero, torch.where(x == math.inf, math.inf, result))


@in_float32
def _trigamma(x: Tensor) -> Tensor:
    positive = torch.where(x < 0.5, 1 - x, x)
    z = positive + _SHIFT
    inverse = 1 / z
    square = inverse * inverse
    result = inverse + 0.5 * square + inverse * square * horner(square, (1 / 6, -1 / 30, 1 / 42))
    for k in range(_SHIFT):
        result = result + (positive + k) ** -2
    sine = (math.pi * _reduced(x)).sin()
    return torch.where(x < 0.5, (math.pi / sine) ** 2 - result, result)


# The Euler-Maclaurin formula: B_2j / (2j)!.
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600)


def _zeta_of_positive(s: int, x: Tensor) -> Tensor:
    """Hurwitz's zeta function for x >= 1/2."""
    z = x + _SHIFT
    result = z ** (1 - s) / (s - 1) + 0.5 * z**-s
    rising = s
    for j, coefficient in enumerate(_BERNOULLI):
        result = result + coefficient * rising * z ** (-s - 2 * j - 1)
        rising *= (s + 2 * j + 1) * (s + 2 * j + 2)
    for k in range(_SHIFT):
        result = result + (x + k) ** -s
    return result


def _derivative_of_cotangent(n: int) -> list[float]:
    """The n-th derivative of cot(pi x), divided by pi^n, as a polynomial in cot(pi x)."""
    polynomial = [0.0, 1.0]
    for _ in range(n):
        slope = [-k * c for k, c in enumerate(polynomial)][1:]
        polynomial = [a + b for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope], strict=True)]
    return polynomial


def _higher_polygamma(n: int, x: Tensor) -> Tensor:
    result = (-1) ** (n + 1) * math.factorial(n) * _zeta_of_positive(n + 1, torch.where(x < 0.5, 1 - x, x))
    angle = math.pi * _reduced(x)
    cotangent = horner(angle.cos() / angle.sin(), _derivative_of_cotangent(n))
    result = torch.where(x < 0.5, (-1) ** n * result - math.pi ** (n + 1) * cotangent, result)
    # Eager's series of powers is infinity less infinity for infinity.
    return torch.where(_is_pole(x), (-1) ** (n + 1) * math.inf, torch.where(x.isinf(), math.nan, result))


@in_float32
def _polygamma(n: int, x: Tensor) -> Tensor:
    if n == 0:
        return _digamma(x)
    return _trigamma(x) if n == 1 else _higher_polygamma(n, x)


_HIGHEST_ORDER = 6


def _is_polygamma_of_low_order(node: Node) -> bool:
    # At the poles of the trigamma function eager gives what rounding leaves of an infinity: integers often lie there,
    # other numbers do not.
    order: Any = node.args[0]
    return is_not_float64(node) and order <= _HIGHEST_ORDER and (order != 1 or reads_float(node))


EXPANSIONS = {
    aten.erfc.default: Expansion(_erfc, is_not_float64),
    aten.special_erfcx.default: Expansion(_erfcx, is_not_float64),
    aten.erfinv.default: Expansion(_erfinv, is_not_float64),
    aten.special_ndtri.default: Expansion(_ndtri, is_not_float64),
    aten.lgamma.default: Expansion(_lgamma, is_not_float64),
    aten.digamma.default: Expansion(_digamma, is_not_float64),
    aten.polygamma.default: Expansion(_polygamma, _is_polygamma_of_low_order),
}
