"""Reductions and searches: NaN as eager sees it, tensors without dimensions, distances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from turbine_lite.graph.expansions.expansion import (
    NARROW,
    Expansion,
    always,
    has_no_dimension,
    is_never_empty,
    tensor_argument,
)

__all__ = ["EXPANSIONS"]

aten = torch.ops.aten


def _reads_numbers(node: Node) -> bool:
    """Whether the first tensor is of numbers, not of booleans."""
    return tensor_argument(node).dtype is not torch.bool


def _index_of_extreme(plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """argmax and argmin that stop at the first NaN, as eager does and IREE does not."""

    def index_of(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        if x.dim() == 0:
            return torch.zeros_like(x, dtype=torch.int64)
        if dim is None:
            result = index_of(x.reshape(-1), 0)
            return result.reshape([1] * x.dim()) if keepdim else result
        if not x.dtype.is_floating_point:
            return plain(x, dim, keepdim)
        is_nan = x.isnan()
        first_nan = is_nan.to(torch.int32).argmax(dim, keepdim)
        return torch.where(is_nan.any(dim, keepdim), first_nan, plain(x, dim, keepdim))

    return index_of


_argmax = _index_of_extreme(torch.argmax)
_argmin = _index_of_extreme(torch.argmin)


def _value_and_index(index_of: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    def extreme(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        if x.dim() == 0:
            return x.clone(), torch.zeros_like(x, dtype=torch.int64)
        index = index_of(x, dim, True)
        value = x.gather(dim, index)
        return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))

    return extreme


def _over_dims(over_dim: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def over_dims(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
        for d in sorted(range(x.dim()) if dim is None else (d % max(x.dim(), 1) for d in dim), reverse=True):
            x = over_dim(x, d, keepdim)
        return x.to(torch.bool) if dim is not None and not dim else x

    return over_dims


def _distance(difference: Tensor, p: float, dim: int) -> Tensor:
    size = difference.abs()
    if p == 0:
        return (size != 0).to(size.dtype).sum(dim)
    if p == 1:
        return size.sum(dim)
    if p == 2:
        return (size * size).sum(dim).sqrt()
    if p == float("inf"):
        return size.amax(dim)
    return size.pow(p).sum(dim).pow(1 / p)


def _cdist(a: Tensor, b: Tensor, p: float, compute_mode: int | None = None) -> Tensor:
    return _distance(a.unsqueeze(-2) - b.unsqueeze(-3), p, -1)


def _pdist(x: Tensor, p: float = 2) -> Tensor:
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    return _distance(x.index_select(0, first) - x.index_select(0, second), p, -1)


def _dist(a: Tensor, b: Tensor, p: float = 2) -> Tensor:
    difference = (a - b).reshape(-1)
    if difference.dtype in NARROW:
        return _distance(difference.to(torch.float32), p, 0).to(difference.dtype)
    return _distance(difference, p, 0)


def _vector_norm(x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    # The squares of numbers in half precision are soon too large for it.
    norm: Tensor = torch.linalg.vector_norm(x.to(torch.float32), ord, dim, keepdim)
    return norm.to(x.dtype)


def _is_half_norm(node: Node) -> bool:
    return tensor_argument(node).dtype in NARROW and node.meta["val"].dtype in NARROW


def _addmv(bias: Tensor, matrix: Tensor, vector: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return _plus(bias, matrix.mv(vector), beta, alpha)


def _addbmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return _plus(bias, left.bmm(right).sum(0).to(bias.dtype), beta, alpha)


def _plus(bias: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    if not bias.dtype.is_floating_point:  # eager rounds the factors towards zero then
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else product * alpha
    if beta == 0:  # then bias is not read: it may be NaN
        return product
    return product + (bias if beta == 1 else bias * beta)


EXPANSIONS = {
    aten.argmax.default: Expansion(_argmax, _reads_numbers),
    aten.argmin.default: Expansion(_argmin, _reads_numbers),
    aten.max.dim: Expansion(_value_and_index(_argmax), _reads_numbers),
    aten.min.dim: Expansion(_value_and_index(_argmin), _reads_numbers),
    aten.all.dims: Expansion(_over_dims(torch.all), lambda node: not has_no_dimension(node)),
    aten.any.dims: Expansion(_over_dims(torch.any), lambda node: not has_no_dimension(node)),
    aten._cdist_forward.default: Expansion(_cdist, is_never_empty),
    aten._pdist_forward.default: Expansion(_pdist, is_never_empty),
    aten.dist.default: Expansion(_dist, is_never_empty),
    aten.linalg_vector_norm.default: Expansion(_vector_norm, _is_half_norm),
    aten.addmv.default: Expansion(_addmv, always),
    aten.addbmm.default: Expansion(_addbmm, always),
}
