"""Scatters, padding, and the copies and writes that go through a view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from turbine_lite.graph.expansions.expansion import Expansion, always, is_never_empty, tensor_argument
from turbine_lite.graph.sizes import is_static

__all__ = ["EXPANSIONS"]

aten = torch.ops.aten


def _written_through(x: Tensor, source: Tensor, view: Callable[[Tensor], Tensor]) -> Tensor:
    """``x`` with ``source`` at the elements that ``view`` selects."""
    index = view(torch.arange(x.numel(), device=x.device).reshape(x.shape))
    return _put(x, index, source.expand(index.shape))


def _diagonal_scatter(x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    return _written_through(x, source, lambda t: torch.diagonal(t, offset, dim1, dim2))


def _strided_index(size: Sequence[int], stride: Sequence[int], offset: int, device: torch.device) -> Tensor:
    index = torch.full([1] * len(size), offset, dtype=torch.int64, device=device)
    for dim, (length, step) in enumerate(zip(size, stride, strict=True)):
        shape = [-1 if d == dim else 1 for d in range(len(size))]
        index = index + (torch.arange(length, device=device) * step).reshape(shape)
    return index


def _as_strided_scatter(
    x: Tensor, source: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    return _put(x, _strided_index(size, stride, storage_offset or 0, x.device), source)


def _as_strided_copy(
    x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    return x.reshape(-1)[_strided_index(size, stride, storage_offset or 0, x.device)]


def _has_rows(node: Node) -> bool:
    """Whether the memory of the first tensor is its elements in row-major order."""
    value = tensor_argument(node)
    static = is_static(value.shape)
    return static and value.is_contiguous() and value.storage_offset() == 0


def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat = x.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


def _put_masked(x: Tensor, indices: Sequence[Tensor | None], source: Tensor, accumulate: bool = False) -> Tensor:
    """``index_put`` through one mask, of values that are the same for all the elements it selects."""
    first = next(dim for dim, index in enumerate(indices) if index is not None)
    mask = indices[first]
    assert mask is not None
    rest = x.dim() - first - mask.dim()
    if source.dim() > rest:  # the dimension of selected elements, of size 1
        before, after = source.shape[: source.dim() - rest - 1], source.shape[source.dim() - rest :]
        source = source.reshape(*before, *[1] * mask.dim(), *after)
    return torch.where(mask.reshape(*[1] * first, *mask.shape, *[1] * rest), x + source if accumulate else source, x)


def _puts_one_value(node: Node) -> bool:
    arguments: Any = node.args
    indices = [index for index in arguments[1] if isinstance(index, Node)]
    if len(indices) != 1 or indices[0].meta["val"].dtype is not torch.bool:
        return False
    x, source = tensor_argument(node), arguments[2].meta["val"]
    rest = x.dim() - list(arguments[1]).index(indices[0]) - indices[0].meta["val"].dim()
    sizes: list[object] = list(source.shape)
    is_one_value = source.dim() <= rest or (isinstance(size := sizes[-1 - rest], int) and size == 1)
    return is_one_value and x.dtype is source.dtype and (x.dtype is not torch.bool or len(node.args) < 4)


def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The n-th element that the mask selects becomes the n-th of ``source``."""
    x, mask = aten.broadcast_tensors.default([x, mask])
    place = mask.reshape(-1).to(torch.int64).cumsum(0) - 1
    taken = source.reshape(-1)[torch.where(mask.reshape(-1), place, 0)]
    return torch.where(mask, taken.reshape(x.shape), x)


def _scatter_mean(x: Tensor, dim: int, index: Tensor, source: Tensor, include_self: bool) -> Tensor:
    nothing = torch.zeros_like(x)
    total = (x if include_self else nothing).scatter_add(dim, index, source)
    count = (torch.ones_like(x) if include_self else nothing).scatter_add(dim, index, torch.ones_like(source))
    divisor = count.clamp_min(1)
    mean = total / divisor if x.dtype.is_floating_point else torch.div(total, divisor, rounding_mode="floor")
    return mean if include_self else torch.where(count > 0, mean, x)


def _scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    assert reduce == "mean"
    return _scatter_mean(x, dim, index, source[tuple(slice(0, length) for length in index.shape)], include_self)


def _is_mean(node: Node) -> bool:
    return "mean" in node.args and _is_regular(node)


def _is_regular(node: Node) -> bool:
    value = tensor_argument(node)
    return value.dim() > 0 and value.dtype is not torch.bool


def _puts_numbers(node: Node) -> bool:
    return tensor_argument(node).dtype is not torch.bool


def _index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    dim %= x.dim()
    shape = [-1 if d == dim else 1 for d in range(x.dim())]
    wide = index.to(torch.int64).reshape(shape).expand(source.shape)
    if reduce == "mean":
        return _scatter_mean(x, dim, wide, source, include_self)
    return x.scatter_reduce(dim, wide, source, reduce, include_self=include_self)


_REDUCTIONS = {"add": "sum", "multiply": "prod"}


def _scatter_with(x: Tensor, dim: int, index: Tensor, source: Any, *, reduce: str) -> Tensor:
    if not isinstance(source, Tensor):
        source = torch.full(index.shape, source, dtype=x.dtype, device=x.device)
    return x.scatter_reduce(dim, index, source, _REDUCTIONS[reduce])


def _pad(x: Tensor, pads: Sequence[int], value: float = 0) -> Tensor:
    # torch-mlir takes no negative padding, which cuts off.
    for i in range(len(pads) // 2):
        dim = x.dim() - 1 - i
        left, right = -min(pads[2 * i], 0), -min(pads[2 * i + 1], 0)
        if left or right:
            x = x.narrow(dim, left, x.shape[dim] - left - right)
    padded: Tensor = aten.constant_pad_nd.default(x, [max(pad, 0) for pad in pads], value)
    return padded


def _pads_negatively(node: Node) -> bool:
    pads = node.args[1]
    assert isinstance(pads, (list, tuple))
    return any(isinstance(pad, int) and pad < 0 for pad in pads)


# In a region nothing shares memory, so a copy of a view is the view.
_COPIES_OF_VIEWS = {
    aten.view_copy.default: aten.view.default,
    aten.permute_copy.default: aten.permute.default,
    aten.narrow_copy.default: aten.narrow.default,
    aten.unbind_copy.int: aten.unbind.int,
    aten.expand_copy.default: aten.expand.default,
    aten.t_copy.default: aten.t.default,
    aten.transpose_copy.int: aten.transpose.int,
    aten.select_copy.int: aten.select.int,
    aten.slice_copy.Tensor: aten.slice.Tensor,
    aten.squeeze_copy.dim: aten.squeeze.dim,
    aten.squeeze_copy.default: aten.squeeze.default,
    aten.unsqueeze_copy.default: aten.unsqueeze.default,
    aten.diagonal_copy.default: aten.diagonal.default,
    aten.alias_copy.default: aten.alias.default,
    aten.detach_copy.default: aten.detach.default,
    aten.split_copy.Tensor: aten.split.Tensor,
    aten.unfold_copy.default: aten.unfold.default,
}

EXPANSIONS = {
    **{copy: Expansion(view, always) for copy, view in _COPIES_OF_VIEWS.items()},
    aten.diagonal_scatter.default: Expansion(_diagonal_scatter, _is_regular),
    aten.as_strided_scatter.default: Expansion(_as_strided_scatter, _has_rows),
    aten.as_strided_copy.default: Expansion(_as_strided_copy, _has_rows),
    aten.constant_pad_nd.default: Expansion(_pad, _pads_negatively),
    aten.index_put.default: Expansion(_put_masked, _puts_one_value),
    aten._unsafe_index_put.default: Expansion(_put_masked, _puts_one_value),
    aten.put.default: Expansion(_put, _puts_numbers),
    aten.masked_scatter.default: Expansion(_masked_scatter, is_never_empty),
    aten.scatter_reduce.two: Expansion(_scatter_reduce, _is_mean),
    aten.index_reduce.default: Expansion(_index_reduce, _is_regular),
    aten.scatter.reduce: Expansion(_scatter_with, _is_regular),
    aten.scatter.value_reduce: Expansion(_scatter_with, _is_regular),
}
