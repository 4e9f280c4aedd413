"""Rewrites of a region that IREE needs for a right result, or at all.

They run after partitioning, on a graph that IREE alone executes, so they need not keep views or strides.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch.fx import Graph, Node

from turbine_lite.graph import numerics
from turbine_lite.graph.insertion import call_with_meta

__all__ = ["is_rewritten", "rewrite_for_iree"]

aten = torch.ops.aten


def rewrite_for_iree(graph: Graph) -> None:
    """Apply all rewrites, in place."""
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        rewrite = _REWRITES.get(node.target)
        if rewrite is not None:
            with graph.inserting_before(node):
                rewrite(graph, node)
    graph.eliminate_dead_code()


def _squeeze_dims(graph: Graph, node: Node) -> None:
    # torch-mlir lowers squeeze of one dimension only.
    source, dims = node.args
    assert isinstance(source, Node)
    assert isinstance(dims, (list, tuple))
    rank = source.meta["val"].dim()
    for dim in sorted({cast(int, dim) % max(rank, 1) for dim in dims}, reverse=True):
        source = call_with_meta(graph, aten.squeeze.dim, (source, dim), node)
    node.replace_all_uses_with(source)


def _wrap_negative_indices(graph: Graph, node: Node) -> None:
    # IREE's scatter does not wrap negative indices: it writes outside of the tensor.
    source, indices, *rest = node.args
    assert isinstance(source, Node)
    assert isinstance(indices, (list, tuple))
    sizes = source.meta["val"].shape
    wrapped = [
        _wrapped(graph, index, sizes[dim], node) if isinstance(index, Node) else None
        for dim, index in enumerate(indices)
    ]
    node.args = (source, wrapped, *rest)


def _wrapped(graph: Graph, index: Node, size: Any, like: Node) -> Node:
    value = index.meta["val"]
    if value.dtype not in (torch.int32, torch.int64) or not isinstance(size, int):
        return index
    negative = call_with_meta(graph, aten.lt.Scalar, (index, 0), like)
    from_end = call_with_meta(graph, aten.add.Scalar, (index, size), like)
    return call_with_meta(graph, aten.where.self, (negative, from_end, index), like)


def _true_divide(graph: Graph, node: Node) -> None:
    node.target = aten.div.Tensor


_REWRITES = {
    aten.true_divide.Tensor: _true_divide,
    **numerics.REWRITES,
    aten.squeeze.dims: _squeeze_dims,
    aten.index.Tensor: _wrap_negative_indices,
    aten.index_put.default: _wrap_negative_indices,
    aten._unsafe_index_put.default: _wrap_negative_indices,
}


def is_rewritten(target: Any) -> bool:
    """Whether calls of an operator are replaced or changed by these rewrites."""
    return target in _REWRITES
