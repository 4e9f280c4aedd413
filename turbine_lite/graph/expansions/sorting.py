"""Sorting of few elements, and searches in sorted ones.

Each of a few elements is compared with all others: how many come before it is its place. That is stable, as eager is
for so few (it changes to an unstable algorithm for more), and takes n * n steps, so more are sorted in eager.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from turbine_lite.graph.expansions.expansion import Expansion, tensor_argument

__all__ = ["EXPANSIONS"]

aten = torch.ops.aten

_MOST = 16


def _order(x: Tensor, descending: bool) -> Tensor:
    """The indices that sort the last dimension; NaN is the greatest number."""
    wide = x.to(torch.int32) if x.dtype is torch.bool else x
    element, other = wide.unsqueeze(-1), wide.unsqueeze(-2)
    precedes = other > element if descending else other < element
    equal = other == element
    if x.dtype.is_floating_point:
        first, second = (other, element) if descending else (element, other)
        precedes = precedes | (first.isnan() & ~second.isnan())
        equal = equal | (element.isnan() & other.isnan())
    place = torch.arange(x.shape[-1], device=x.device)
    precedes = precedes | (equal & (place < place.unsqueeze(-1)))
    rank = precedes.to(torch.int64).sum(-1)
    return torch.where(rank.unsqueeze(-2) == place.unsqueeze(-1), place, 0).sum(-1)


def _sort(x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    index = _order(x.movedim(dim, -1), descending).movedim(-1, dim)
    return x.gather(dim, index), index


def _sort_stable(x: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    return _sort(x, dim, descending)


def _topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    values, index = _sort(x, dim, largest)
    return values.narrow(dim, 0, k), index.narrow(dim, 0, k)


def _is_short(position: int) -> Any:
    def is_short(node: Node) -> bool:
        value = tensor_argument(node)
        dim: Any = node.args[position] if len(node.args) > position else node.kwargs.get("dim", -1)
        size: object = value.shape[dim] if value.dim() else 0
        return isinstance(size, int) and 0 < size <= _MOST

    return is_short


def _is_short_topk(node: Node) -> bool:
    # Which of equal elements eager finds is the accident of its algorithm.
    values_only = all(user.target is operator.getitem and user.args[1] == 0 for user in node.users)
    is_short: bool = _is_short(2)(node)
    return values_only and is_short


def _searchsorted(
    sequence: Tensor,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Bisection, step by step as in eager, so that it agrees on sequences that are not sorted, too."""
    size = sequence.shape[-1]
    shape = values.shape if isinstance(values, Tensor) else ()
    start = torch.zeros(shape, dtype=torch.int64, device=sequence.device)
    end = torch.full(shape, size, dtype=torch.int64, device=sequence.device)
    for _ in range(size.bit_length()):
        middle = start + torch.div(end - start, 2, rounding_mode="floor")
        at = middle.clamp_max(size - 1)
        if sorter is not None:
            at = _at(sorter, at)
        found = _at(sequence, at)
        is_later = ~(found > values if right or side == "right" else found >= values)
        is_open = start < end
        start = torch.where(is_open & is_later, middle + 1, start)
        end = torch.where(is_open & ~is_later, middle, end)
    return start.to(torch.int32) if out_int32 else start


def _at(sequence: Tensor, index: Tensor) -> Tensor:
    if sequence.dim() > 1:
        return sequence.gather(-1, index)
    return sequence.index_select(0, index.reshape(-1)).reshape(index.shape)


def _searches_static(node: Node) -> bool:
    size: object = tensor_argument(node).shape[-1] if tensor_argument(node).dim() else 0
    return isinstance(size, int)


EXPANSIONS = {
    aten.sort.default: Expansion(_sort, _is_short(1)),
    aten.sort.stable: Expansion(_sort_stable, _is_short(1)),
    aten.topk.default: Expansion(_topk, _is_short_topk),
    aten.searchsorted.Tensor: Expansion(_searchsorted, _searches_static),
    aten.searchsorted.Scalar: Expansion(_searchsorted, _searches_static),
}
