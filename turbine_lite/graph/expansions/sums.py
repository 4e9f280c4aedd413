"""Sums of very many numbers, in stages.

IREE adds up one after the other: 8 million float32 numbers around 100 get a variance that is wrong in the first digit,
where eager adds in pairs of blocks. Stages of at most a few thousand numbers keep the error at eager's. Over dynamic
sizes the sizes of the first call decide; eight million numbers where there were a hundred then lose digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from turbine_lite.graph.expansions.expansion import Expansion, tensor_argument
from turbine_lite.graph.sizes import is_static, size_hint

__all__ = ["EXPANSIONS"]

aten = torch.ops.aten

_MOST_IN_ONE_STAGE = 4096
_STAGE = 1024
_LARGE = 1 << 16


def _sum_dim(x: Tensor, dim: int) -> Tensor:
    size: Any = x.shape[dim]
    if not isinstance(size, int):
        if size_hint(size) < _STAGE:  # padding would multiply the memory
            return x.sum(dim, keepdim=True)
        blocks = (size + _STAGE - 1) // _STAGE
        pads = [0, 0] * (x.dim() - 1 - dim) + [0, blocks * _STAGE - size]
        x = aten.constant_pad_nd.default(x, pads, 0.0)
        return x.reshape(*x.shape[:dim], blocks, _STAGE, *x.shape[dim + 1 :]).sum(dim + 1).sum(dim, keepdim=True)
    while x.shape[dim] > _MOST_IN_ONE_STAGE:
        missing = -x.shape[dim] % _STAGE
        if missing:
            x = torch.nn.functional.pad(x, [0, 0] * (x.dim() - 1 - dim) + [0, missing])
        x = x.reshape(*x.shape[:dim], -1, _STAGE, *x.shape[dim + 1 :]).sum(dim + 1)
    return x.sum(dim, keepdim=True)


def _dims(x: Tensor, dim: Any) -> list[int]:
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(x.dim()))
    return sorted(d % x.dim() for d in ([dim] if isinstance(dim, int) else dim))


def _sum(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    dtype = dtype or x.dtype
    wide = x.to(torch.float32)
    dims = _dims(x, dim)
    for d in reversed(dims):
        wide = _sum_dim(wide, d)
    return (wide if keepdim else wide.squeeze(dims)).to(dtype)


def _mean(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    dtype = dtype or x.dtype
    count = math.prod(x.shape[d] for d in _dims(x, dim))
    return (_sum(x, dim, keepdim, dtype=torch.float32) / count).to(dtype)


def _var_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    dims = _dims(x, dim)
    wide = x if x.dtype is torch.float64 else x.to(torch.float32)
    mean = wide.mean(dims, True)
    difference = wide - mean
    less = 1 if correction is None else correction
    divisor = math.prod(x.shape[d] for d in dims) - (int(less) if less == int(less) else less)
    squares = (difference * difference).sum(dims, True)
    is_positive = divisor > 0 if isinstance(divisor, (int, float)) else True  # a dynamic size is expected to be large
    variance = squares / divisor if is_positive else torch.where(squares > 0, math.inf, math.nan).to(wide.dtype)
    if not keepdim:
        variance, mean = variance.squeeze(dims), mean.squeeze(dims)
    return variance.to(x.dtype), mean.to(x.dtype)


def _var(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    return _var_mean(x, dim, correction=correction, keepdim=keepdim)[0]


def _std(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    return _var(x, dim, correction=correction, keepdim=keepdim).sqrt()


def _count(node: Node) -> int:
    """How many numbers become one."""
    value = tensor_argument(node)
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    return math.prod(size_hint(value.shape[d]) for d in _dims(value, dim)) if value.dim() else 1


def _is_large(node: Node) -> bool:
    result = node.meta["val"]
    results = [result] if isinstance(result, Tensor) else result
    narrow = all(r.is_floating_point() and r.dtype is not torch.float64 for r in results)
    return narrow and _count(node) >= _LARGE


def _needs_care(node: Node) -> bool:
    """Whether there are very many numbers, or so few that the variance is no number, which torch-mlir has as -0."""
    if not is_static(tensor_argument(node).shape):
        return _is_large(node)
    correction: Any = node.kwargs.get("correction")
    return _is_large(node) or _count(node) <= (1 if correction is None else correction)


EXPANSIONS = {
    aten.sum.default: Expansion(_sum, _is_large),
    aten.sum.dim_IntList: Expansion(_sum, _is_large),
    aten.mean.default: Expansion(_mean, _is_large),
    aten.mean.dim: Expansion(_mean, _is_large),
    aten.var.correction: Expansion(_var, _needs_care),
    aten.std.correction: Expansion(_std, _needs_care),
    aten.var_mean.correction: Expansion(_var_mean, _needs_care),
}
