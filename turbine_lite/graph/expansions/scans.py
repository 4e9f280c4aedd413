"""Scans: results of all beginnings of a dimension, in log2(n) steps.

In each step every element is combined with what lies 1, 2, 4, ... elements before it (W. D. Hillis and G. L. Steele,
"Data parallel algorithms", Communications of the ACM 29, 1986).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.fx import Node

from turbine_lite.graph.expansions.expansion import NARROW, Expansion, in_float32, is_not_float64, tensor_argument

__all__ = ["EXPANSIONS"]

aten = torch.ops.aten

Values = tuple[Tensor, ...]

# Each step reads and writes everything once; beyond this many, eager's single pass is faster.
_LONGEST = 512


def _scan(values: Values, dim: int, combine: Callable[[Values, Values], Values]) -> Values:
    """``combine`` takes what belongs to earlier elements and what belongs to later ones."""
    size, distance = values[0].shape[dim], 1
    while distance < size:
        earlier = tuple(value.narrow(dim, 0, size - distance) for value in values)
        later = tuple(value.narrow(dim, distance, size - distance) for value in values)
        first = (value.narrow(dim, 0, distance) for value in values)
        values = tuple(torch.cat(pair, dim) for pair in zip(first, combine(earlier, later), strict=True))
        distance *= 2
    return values


def _cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    dtype = dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
    wide = x.to(dtype).to(torch.float32 if dtype in NARROW else dtype)
    return _scan((wide,), dim, lambda a, b: (a[0] * b[0],))[0].to(dtype)


def _cumulative_extreme(is_at_least: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, int], Values]:
    def combine(earlier: Values, later: Values) -> Values:
        takes_later = is_at_least(later[0], earlier[0])
        if earlier[0].dtype.is_floating_point:  # NaN stays, and the last one is the one that counts
            takes_later = later[0].isnan() | (takes_later & ~earlier[0].isnan())
        return tuple(torch.where(takes_later, b, a) for a, b in zip(earlier, later, strict=True))

    def extreme(x: Tensor, dim: int) -> Values:
        shape = [-1 if d == dim % x.dim() else 1 for d in range(x.dim())]
        index = torch.arange(x.shape[dim], device=x.device).reshape(shape).expand(x.shape)
        return _scan((x, index), dim, combine)

    return extreme


@in_float32
def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    def combine(earlier: Values, later: Values) -> Values:
        a, b = earlier[0], later[0]
        large, small = torch.maximum(a, b), torch.minimum(a, b)
        return (torch.where(large.isinf(), large, large + torch.log1p(torch.exp(small - large))),)

    return _scan((x,), dim, combine)[0]


def _is_short(node: Node) -> bool:
    value = tensor_argument(node)
    dim = node.args[1]
    assert isinstance(dim, int)
    size: object = value.shape[dim]
    return isinstance(size, int) and size <= _LONGEST and value.dtype is not torch.bool


def _is_short_and_not_float64(node: Node) -> bool:
    return _is_short(node) and is_not_float64(node)


EXPANSIONS = {
    aten.cumprod.default: Expansion(_cumprod, _is_short),
    aten.cummax.default: Expansion(_cumulative_extreme(torch.ge), _is_short),
    aten.cummin.default: Expansion(_cumulative_extreme(torch.le), _is_short),
    aten.logcumsumexp.default: Expansion(_logcumsumexp, _is_short_and_not_float64),
}
