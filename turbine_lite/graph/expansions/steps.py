"""Operators that jump between neighbouring numbers: comparisons, casts to integers, rounding to whole ones.

Of results in half precision that IREE has not rounded yet, they would give other results than eager; they read what
the casts of :mod:`turbine_lite.graph.expansions.rounding` have rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from turbine_lite.graph.expansions.expansion import NARROW, Expansion, reads_float, tensor_argument
from turbine_lite.graph.scalar_arguments import COMPARISONS

__all__ = ["EXPANSIONS"]

aten = torch.ops.aten

_OTHERS = (
    *(aten.floor.default, aten.ceil.default, aten.trunc.default, aten.round.default),
    *(aten.argmax.default, aten.argmin.default),
)


def _of_rounded(op: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(*args: Any, **kwargs: Any) -> Tensor:
        dtype = next(arg.dtype for arg in args if _is_half(arg))
        result = op(*(arg.to(torch.float32) if _is_half(arg) else arg for arg in args), **kwargs)
        return result.to(dtype) if result.is_floating_point() else result

    return call


def _is_half(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in NARROW


def _reads_computed_half(node: Node) -> bool:
    # What a region is given was stored.
    return any(_is_half(source.meta.get("val")) and source.op == "call_function" for source in node.all_input_nodes)


def _to_integer(x: Tensor, dtype: torch.dtype) -> Tensor:
    if _is_half(x):
        x = x.to(torch.float32)
    # What is out of range is not clamped: eager converts to more bits and takes the lower ones.
    between = _THROUGH.get((x.dtype, dtype)) or _THROUGH.get(dtype)
    return (x.to(between) if between else x).to(dtype)


_THROUGH: dict[Any, torch.dtype] = {torch.int16: torch.int32, (torch.float64, torch.uint8): torch.int64}


def _is_cast_to_integer(node: Node) -> bool:
    dtype = node.meta["val"].dtype
    if dtype.is_floating_point or dtype.is_complex or not reads_float(node):
        return False
    source = tensor_argument(node).dtype
    return dtype in _THROUGH or (source, dtype) in _THROUGH or _reads_computed_half(node)


EXPANSIONS = {
    torch.ops.prims.convert_element_type.default: Expansion(_to_integer, _is_cast_to_integer),
    **{op: Expansion(_of_rounded(op), _reads_computed_half) for op in (*COMPARISONS, *_OTHERS)},
}
