"""Integer operators that torch-mlir does not know, or lowers without care for the edges of their range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from turbine_lite.graph.expansions.expansion import NARROW, Expansion, always, reads_float, tensor_argument
from turbine_lite.graph.expansions.rounding import rounded

__all__ = ["EXPANSIONS"]

aten = torch.ops.aten

_LARGEST_POWER = 64


def _with_tensor(op: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Any], Tensor]:
    """The overload for a scalar as that for a tensor, which torch-mlir knows."""

    def with_scalar(x: Tensor, scalar: Any) -> Tensor:
        return op(x, torch.full([], scalar, dtype=x.dtype, device=x.device))

    return with_scalar


def _power(base: Tensor, exponent: int) -> Tensor:
    """By squaring; it wraps around as eager does."""
    result = torch.ones_like(base)
    while exponent:
        if exponent & 1:
            result = result * base
        exponent >>= 1
        if exponent:
            base = base * base
    return result


def _has_small_power(node: Node) -> bool:
    exponent = node.args[1]
    return not reads_float(node) and type(exponent) is int and 0 <= exponent <= _LARGEST_POWER


def _shift_left(x: Tensor, count: Tensor) -> Tensor:
    # The machine's shift looks at the low bits of the count alone.
    bits = torch.iinfo(torch.result_type(x, count)).bits
    in_range = (count >= 0) & (count < bits)
    return torch.where(in_range, torch.bitwise_left_shift(x, torch.where(in_range, count, 0)), 0)


def _shift_right(x: Tensor, count: Tensor) -> Tensor:
    limits = torch.iinfo(torch.result_type(x, count))
    most = limits.bits - 1 if limits.min else limits.bits  # all bits are gone, but for the sign
    in_range = (count >= 0) & (count <= most)
    return torch.bitwise_right_shift(x, torch.where(in_range, count, most))


def _keeps_integers(node: Node) -> bool:
    return not reads_float(node) and not node.meta["val"].is_floating_point()


def _to_half(x: Tensor, dtype: torch.dtype) -> Tensor:
    # By way of float32, as eager does. The compiler makes one conversion of two, which for bfloat16 its linker lacks:
    # unless the digits that go are cut off between them.
    wide = x.to(torch.float32)
    return (rounded(wide, dtype) if dtype is torch.bfloat16 else wide).to(dtype)


def _is_whole_to_half(node: Node) -> bool:
    source = tensor_argument(node).dtype
    return not source.is_floating_point and not source.is_complex and node.meta["val"].dtype in NARROW


def _remainder_of_trunc(x: Tensor, divisor: Any) -> Tensor:
    remainder: Tensor = x - torch.div(x, divisor, rounding_mode="trunc") * divisor
    return remainder


EXPANSIONS = {
    torch.ops.prims.convert_element_type.default: Expansion(_to_half, _is_whole_to_half),
    aten.fmod.Scalar: Expansion(_remainder_of_trunc, _keeps_integers),
    aten.bitwise_or.Scalar: Expansion(_with_tensor(aten.bitwise_or.Tensor), always),
    aten.bitwise_xor.Scalar: Expansion(_with_tensor(aten.bitwise_xor.Tensor), always),
    aten.bitwise_left_shift.Tensor_Scalar: Expansion(_with_tensor(_shift_left), always),
    aten.bitwise_right_shift.Tensor_Scalar: Expansion(_with_tensor(_shift_right), always),
    aten.__lshift__.Scalar: Expansion(_with_tensor(_shift_left), lambda node: not reads_float(node)),
    aten.__rshift__.Scalar: Expansion(_with_tensor(_shift_right), lambda node: not reads_float(node)),
    aten.__lshift__.Tensor: Expansion(_shift_left, lambda node: not reads_float(node)),
    aten.__rshift__.Tensor: Expansion(_shift_right, lambda node: not reads_float(node)),
    aten.bitwise_left_shift.Tensor: Expansion(_shift_left, always),
    aten.bitwise_right_shift.Tensor: Expansion(_shift_right, always),
    aten.pow.Tensor_Scalar: Expansion(_power, _has_small_power),
}
