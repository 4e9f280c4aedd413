"""Indexing over dynamic shapes: by several tensors, and writes by one of more than one dimension.

``x[i, j]`` becomes ``x.flatten(0, 1)[i * x.shape[1] + j]``: torch-mlir does not see that the shapes of ``i`` and ``j``
are equal. ``x[i] = v`` becomes ``x[i.flatten()] = v.flatten(0, i.dim() - 1)``: IREE mixes up the dimensions of two such
scatters that read one tensor. By then the indices have been checked, and negative ones made positive, one by one
(``graph/bounds.py``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from turbine_lite.graph.insertion import call_with_meta, size_of
from turbine_lite.graph.signature import inverse
from turbine_lite.graph.sizes import is_static

__all__ = ["flatten_index", "flatten_index_put"]

aten = torch.ops.aten


def flatten_index(graph: Graph, node: Node) -> None:
    """Make one index of several, in place."""
    source: Any
    indices: Any
    source, indices = node.args
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    if len(dims) < 2 or all(is_static(indices[dim].meta["val"].shape) for dim in dims):
        return
    if not _adjacent(dims):
        source = call_with_meta(graph, aten.permute.default, (source, list(_indexed_first(source, dims))), node)
        indices = [indices[dim] for dim in dims]
        dims = list(range(len(dims)))
    merged = _flatten(graph, node, source, dims[0], dims[-1])
    node.args = (merged, [*[None] * dims[0], _flat(graph, node, source, indices, dims)])


def flatten_index_put(graph: Graph, node: Node) -> None:
    """Make one index of one dimension of the indices, in place."""
    source: Any
    indices: Any
    source, indices, values, *accumulate = node.args
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    index_values = [indices[dim].meta["val"] for dim in dims]
    if any(value.dtype == torch.bool for value in index_values):
        return
    if not _adjacent(dims):  # torch-mlir has no lowering; the values come in the order of the permuted tensor
        order = _indexed_first(source, dims)
        source = call_with_meta(graph, aten.permute.default, (source, list(order)), node)
        put = _flat_put(graph, node, (source, [indices[dim] for dim in dims], values, *accumulate))
        back = list(inverse(order))
        node.replace_all_uses_with(call_with_meta(graph, aten.permute.default, (put, back), node))
    elif (
        dims[0] == 0
        and not all(is_static(value.shape) for value in index_values)
        and (len(dims) > 1 or index_values[0].dim() > 1)
    ):
        node.replace_all_uses_with(_flat_put(graph, node, node.args))


def _flat_put(graph: Graph, node: Node, args: Any) -> Node:
    """Of all calls with indices for the first dimensions."""
    source, indices, values, *accumulate = args
    count = len(indices)
    flat = _flat(graph, node, source, indices, list(range(count)))
    rank = flat.meta["val"].dim()
    values = _broadcast(graph, node, values, [(flat, dim) for dim in range(rank)] + _rest(source, count))
    values = _flatten(graph, node, values, 0, rank - 1)
    merged = _flatten(graph, node, source, 0, count - 1)
    index = _flatten(graph, node, flat, 0, rank - 1)
    put = call_with_meta(graph, aten.index_put.default, (merged, [index], values, *accumulate), node)
    if count == 1:
        return put
    sizes = [size_of(graph, source, dim, node) for dim in range(source.meta["val"].dim())]
    return call_with_meta(graph, aten.view.default, (put, sizes), node)


def _adjacent(dims: list[int]) -> bool:
    return dims == list(range(dims[0], dims[0] + len(dims)))


def _indexed_first(source: Node, dims: list[int]) -> tuple[int, ...]:
    return (*dims, *(dim for dim in range(source.meta["val"].dim()) if dim not in dims))


def _flat(graph: Graph, node: Node, source: Node, indices: Any, dims: list[int]) -> Node:
    """The index into the merged dimensions."""
    flat: Node = indices[dims[0]]
    for dim in dims[1:]:
        rows = call_with_meta(graph, aten.mul.Tensor, (flat, size_of(graph, source, dim, node)), node)
        flat = call_with_meta(graph, aten.add.Tensor, (rows, indices[dim]), node)
    return flat


def _flatten(graph: Graph, node: Node, source: Node, first: int, last: int) -> Node:
    if first == last:
        return source
    return call_with_meta(graph, aten.flatten.using_ints, (source, first, last), node)


def _rest(source: Node, first: int) -> list[tuple[Node, int]]:
    return [(source, dim) for dim in range(first, source.meta["val"].dim())]


def _broadcast(graph: Graph, node: Node, values: Node, like: list[tuple[Node, int]]) -> Node:
    """``values`` of the size of the given dimensions of tensors."""
    wanted = [tensor.meta["val"].shape[dim] for tensor, dim in like]
    if [str(size) for size in values.meta["val"].shape] == [str(size) for size in wanted]:
        return values
    sizes = [size_of(graph, tensor, dim, node) for tensor, dim in like]
    return call_with_meta(graph, aten.expand.default, (values, sizes), node)
