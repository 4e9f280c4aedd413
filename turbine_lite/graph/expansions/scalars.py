"""Tensors without dimensions, which eager takes for ones of a single element, and writes of a single element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from turbine_lite.graph.expansions.expansion import Expansion, has_no_dimension, tensor_argument
from turbine_lite.graph.index_operators import SCATTERS

__all__ = ["EXPANSIONS"]

aten = torch.ops.aten


def _itself(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return x.clone()


def _itself_at_zero(x: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    return x.clone(), torch.zeros_like(x, dtype=torch.int64)


def _accumulated(x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    return x.to(dtype or (x.dtype if x.dtype.is_floating_point else torch.int64), copy=True)


def _softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return _log_softmax(x, dim, half_to_float).exp()


def _log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return (x - x).to(torch.float32 if half_to_float else x.dtype)


def _gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    return x.expand(index.shape).clone()


def _along_a_dimension(op: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A write at the positions of a list."""

    def write(x: Tensor, dim: int, index: Tensor, source: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return op(x.reshape(1), 0, index.reshape(-1), source.reshape(-1), *args, **kwargs).reshape([])

    return write


def _scatter(op: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A scatter along the second of two dimensions."""

    def write(x: Tensor, dim: int, index: Tensor, source: Any, *args: Any, **kwargs: Any) -> Tensor:
        source = source.reshape(1, -1) if isinstance(source, Tensor) else source
        return op(x.reshape(1, -1), 1, index.reshape(1, -1), source, *args, **kwargs).reshape(x.shape)

    return write


def _writes_one_element(node: Node) -> bool:
    # Of the single update that torch-mlir's lowering computes, IREE takes a constant value for 0.
    index: Any = node.args[2]
    value, index_value = tensor_argument(node), index.meta["val"]
    return value.dim() == 0 or (value.dim() == index_value.dim() == 1 and _is_one(index_value.shape[0]))


def _is_one(size: object) -> bool:
    return isinstance(size, int) and size == 1


def _put(x: Tensor, indices: Sequence[Tensor | None], source: Tensor, accumulate: bool = False) -> Tensor:
    """``index_put`` at one position, which IREE's compiler crashes on, as one at a list of positions."""
    at = [dim for dim, index in enumerate(indices) if index is not None]
    rest = [size for dim, size in enumerate(x.shape) if dim not in at]
    adjacent = at[-1] - at[0] + 1 == len(at)
    source = source.expand(rest).unsqueeze(at[0] if adjacent else 0)
    result: Tensor = aten.index_put.default(
        x, [None if i is None else i.reshape(1) for i in indices], source, accumulate
    )
    return result


def _puts_at_one_position(node: Node) -> bool:
    indices: Any = node.args[1]
    values = [index.meta["val"] for index in indices if index is not None]
    return all(value.dim() == 0 and value.dtype not in (torch.bool, torch.uint8) for value in values)


_ALONG_A_DIMENSION = (aten.index_reduce.default, aten.index_add.default)

EXPANSIONS = {
    # IREE's compiler hangs on these.
    aten._softmax.default: Expansion(_softmax, has_no_dimension),
    aten._log_softmax.default: Expansion(_log_softmax, has_no_dimension),
    aten.amax.default: Expansion(_itself, has_no_dimension),
    aten.amin.default: Expansion(_itself, has_no_dimension),
    aten.sort.default: Expansion(_itself_at_zero, has_no_dimension),
    aten.sort.stable: Expansion(_itself_at_zero, has_no_dimension),
    aten.cumsum.default: Expansion(_accumulated, has_no_dimension),
    aten.cumprod.default: Expansion(_accumulated, has_no_dimension),
    aten.cummax.default: Expansion(_itself_at_zero, has_no_dimension),
    aten.cummin.default: Expansion(_itself_at_zero, has_no_dimension),
    aten.logcumsumexp.default: Expansion(_itself, has_no_dimension),
    aten.prod.dim_int: Expansion(_accumulated, has_no_dimension),
    aten.gather.default: Expansion(_gather, has_no_dimension),
    aten.index_put.default: Expansion(_put, _puts_at_one_position),
    **{op: Expansion(_scatter(op), _writes_one_element) for op in SCATTERS},
    **{op: Expansion(_along_a_dimension(op), has_no_dimension) for op in _ALONG_A_DIMENSION},
}
