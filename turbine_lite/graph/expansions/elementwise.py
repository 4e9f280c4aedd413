"""Element-wise operators in terms of those that IREE gets right, signs of zero and NaN included."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from turbine_lite.graph.expansions.expansion import (
    NARROW,
    Expansion,
    always,
    bits_of,
    from_bits,
    in_float32,
    is_not_float64,
    reads_float,
    tensor_argument,
)

__all__ = ["EXPANSIONS", "signbit"]

aten = torch.ops.aten


def signbit(x: Tensor) -> Tensor:
    """Whether the sign is negative, that of zeros and NaN too."""
    if not x.dtype.is_floating_point:
        return x < 0 if x.dtype is not torch.bool else torch.zeros_like(x)
    return bits_of(x) < 0


def _copysign(x: Tensor, sign: Tensor | float) -> Tensor:
    dtype = torch.result_type(x, sign)
    if not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    magnitude = x.to(dtype).abs()
    if not isinstance(sign, Tensor):
        return -magnitude if math.copysign(1.0, sign) < 0 else magnitude
    return torch.where(signbit(sign), -magnitude, magnitude)


@in_float32
def _log10(x: Tensor) -> Tensor:
    return x.log() * (1 / math.log(10))


@in_float32
def _hypot(a: Tensor, b: Tensor) -> Tensor:
    a, b = a.abs(), b.abs()
    large, small = torch.maximum(a, b), torch.minimum(a, b)
    ratio = torch.where(large == 0, 0.0, small / large)
    result = large * (1 + ratio * ratio).sqrt()
    return torch.where(a.isinf() | b.isinf(), math.inf, result)


@in_float32
def _atan2(y: Tensor, x: Tensor) -> Tensor:
    # The quotient is meaningless for two zeros and two infinities; the angles are those of (1 or 0, 1).
    y, x = aten.broadcast_tensors.default([y, x])
    zeros, infinities = (y == 0) & (x == 0), y.isinf() & x.isinf()
    x = torch.where(zeros | infinities, _copysign(torch.ones_like(x), x), x)
    y = torch.where(infinities, _copysign(torch.ones_like(y), y), y)
    angle = torch.atan2(y.abs(), x)  # in the upper half plane, where no sign of zero matters but that of x
    angle = torch.where((y == 0) & signbit(x), math.pi, angle)
    angle = torch.where(y.isnan() | x.isnan(), math.nan, angle)
    return torch.where(signbit(y), -angle, angle)


@in_float32
def _elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    # torch-mlir takes 1 from the exponential, which leaves no digits of small numbers.
    return torch.where(x > 0, x * scale, torch.expm1(x * input_scale) * (alpha * scale))


def _angle(x: Tensor) -> Tensor:
    if not x.dtype.is_floating_point:
        x = x.to(torch.float32)
    return torch.where(x.isnan(), x, torch.where(x < 0, math.pi, 0.0).to(x.dtype))


def _fmax(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(a.isnan(), b, torch.where(b.isnan(), a, torch.maximum(a, b)))


def _fmin(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(a.isnan(), b, torch.where(b.isnan(), a, torch.minimum(a, b)))


def _nextafter(x: Tensor, towards: Tensor) -> Tensor:
    x, towards = aten.broadcast_tensors.default([x, towards])
    bits = bits_of(x)
    away_from_zero = (towards > x) == (x > 0)
    moved = from_bits(torch.where(away_from_zero, bits + 1, bits - 1), x.dtype)
    tiny = from_bits(torch.ones_like(bits), x.dtype)
    moved = torch.where(x == 0, torch.where(towards > 0, tiny, -tiny), moved)
    moved = torch.where(x == towards, towards, moved)
    return torch.where(x.isnan() | towards.isnan(), math.nan, moved)


_FIELD, _IMPLICIT = 0xFF << 23, 126 << 23  # of the exponent of a float32; what it is in [0.5, 1)


def _frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    wide = x.to(torch.float32)
    bits = bits_of(wide)
    # IREE takes subnormal numbers for zero; their digits are an integer.
    digits = (bits & ~_FIELD & 0x7FFFFFFF).to(torch.float32)
    is_subnormal = (bits & _FIELD) == 0
    normal = bits_of(torch.where(is_subnormal, torch.where(bits < 0, -digits, digits), wide))
    exponent = ((normal & _FIELD) >> 23) - 126 - torch.where(is_subnormal, 149, 0)
    mantissa = from_bits((normal & ~_FIELD) | _IMPLICIT, torch.float32)
    is_regular = ((bits & 0x7FFFFFFF) != 0) & wide.isfinite()
    return torch.where(is_regular, mantissa, wide).to(x.dtype), torch.where(is_regular, exponent, 0).to(torch.int32)


@in_float32
def _pow(base: Tensor, exponent: Tensor) -> Tensor:
    """IREE's power for positive bases, and the other cases of IEEE 754's ``pow`` around it."""
    base, exponent = aten.broadcast_tensors.default([base, exponent])
    magnitude = base.abs()
    is_zero, is_infinite = magnitude == 0, magnitude.isinf()
    is_regular = ~(is_zero | is_infinite)
    result = torch.pow(torch.where(is_regular, magnitude, 1.0), exponent)
    vanishes = torch.where(is_zero, exponent > 0, exponent < 0)
    result = torch.where(is_regular, result, torch.where(vanishes, 0.0, math.inf))
    # An infinite exponent is an even integer.
    is_integer = (exponent.floor() == exponent) | exponent.isinf()
    half = exponent * 0.5
    is_odd = is_integer & (half.floor() != half) & ~exponent.isinf()
    result = torch.where(signbit(base) & is_odd, -result, result)
    result = torch.where((base < 0) & ~is_integer & ~base.isinf(), math.nan, result)
    infinite_exponent = torch.where((magnitude > 1) == (exponent > 0), math.inf, 0.0)
    result = torch.where(exponent.isinf() & (magnitude != 1), infinite_exponent, result)
    result = torch.where(exponent.isinf() & (magnitude == 1), 1.0, result)
    result = torch.where(base.isnan() | exponent.isnan(), math.nan, result)
    return torch.where((exponent == 0) | (base == 1), 1.0, result)


@in_float32
def _fmod(x: Tensor, divisor: Tensor | float) -> Tensor:
    # IREE takes the difference to the rounded quotient; its remainder is exact.
    size = divisor.abs() if isinstance(divisor, Tensor) else torch.full_like(x, abs(divisor))
    return _copysign(torch.remainder(x.abs(), size), x)


def _of_scalar(operator: Any) -> Callable[[float, Tensor], Tensor]:
    """``operator`` of a number and a tensor, by two tensors."""

    def apply(x: float, other: Tensor) -> Tensor:
        dtype = torch.result_type(x, other)
        result: Tensor = operator(torch.full_like(other, x, dtype=dtype), other.to(dtype))
        return result

    return apply


@in_float32
def _floor_divide(x: Tensor | float, divisor: Tensor | float, *, rounding_mode: str = "floor") -> Tensor:
    """By the remainder, as eager: the quotient alone may be rounded up to the next integer."""
    like = x if isinstance(x, Tensor) else divisor
    assert isinstance(like, Tensor)
    x, divisor = (value if isinstance(value, Tensor) else torch.full_like(like, value) for value in (x, divisor))
    remainder = torch.fmod(x, divisor)
    quotient = (x - remainder) / divisor
    quotient = torch.where((remainder != 0) & ((remainder < 0) != (divisor < 0)), quotient - 1, quotient)
    rounded = quotient.floor()
    rounded = torch.where(quotient - rounded > 0.5, rounded + 1, rounded)
    exact = x / divisor
    rounded = torch.where(quotient == 0, _copysign(torch.zeros_like(exact), exact), rounded)
    return torch.where(divisor == 0, exact, rounded)


def _rounds_down_floats(node: Node) -> bool:
    divides_down = node.kwargs.get("rounding_mode") == "floor" or "floor_divide" in str(node.target)
    return divides_down and node.meta["val"].is_floating_point()


def _scalar_pow(base: float, exponent: Tensor) -> Tensor:
    dtype = torch.result_type(base, exponent)
    return _pow(torch.full_like(exponent, base, dtype=dtype), exponent.to(dtype))


def _needs_real_pow(node: Node) -> bool:
    base = node.args[0]
    return node.meta["val"].is_floating_point() and not (isinstance(base, (int, float)) and base > 0)


EXPANSIONS = {
    aten.signbit.default: Expansion(signbit, always),
    aten.copysign.Tensor: Expansion(_copysign, always),
    aten.copysign.Scalar: Expansion(_copysign, always),
    aten.log10.default: Expansion(_log10, always),
    aten.hypot.default: Expansion(_hypot, always),
    aten.atan2.default: Expansion(_atan2, is_not_float64),
    aten.elu.default: Expansion(_elu, is_not_float64),
    aten.angle.default: Expansion(_angle, always),
    aten.fmax.default: Expansion(_fmax, reads_float),
    aten.fmin.default: Expansion(_fmin, reads_float),
    aten.nextafter.default: Expansion(_nextafter, is_not_float64),
    aten.pow.Tensor_Tensor: Expansion(_pow, lambda node: node.meta["val"].is_floating_point()),
    aten.frexp.Tensor: Expansion(_frexp, lambda node: tensor_argument(node).dtype in (torch.float32, *NARROW)),
    aten.fmod.Tensor: Expansion(_fmod, lambda node: node.meta["val"].is_floating_point()),
    aten.fmod.Scalar: Expansion(_fmod, lambda node: node.meta["val"].is_floating_point()),
    aten.remainder.Scalar_Tensor: Expansion(_of_scalar(torch.remainder), always),
    aten.bitwise_left_shift.Scalar_Tensor: Expansion(_of_scalar(torch.bitwise_left_shift), always),
    aten.bitwise_right_shift.Scalar_Tensor: Expansion(_of_scalar(torch.bitwise_right_shift), always),
    **{
        op: Expansion(_floor_divide, _rounds_down_floats)
        for op in (aten.div.Tensor_mode, aten.div.Scalar_mode, aten.floor_divide.default, aten.floor_divide.Scalar)
    },
    aten.pow.Scalar: Expansion(_scalar_pow, _needs_real_pow),
}
