"""Rewrites of what torch-mlir's lowerings, or IREE's, give no right result for, or none at all.

They run on a graph that is lowered whole (after partitioning), so they need not keep views or strides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch.fx import Graph, Node

from turbine_lite.graph import numerics
from turbine_lite.graph.flat_index import flatten_index, flatten_index_put
from turbine_lite.graph.index_operators import ALONG_DIMENSION
from turbine_lite.graph.insertion import call_with_meta
from turbine_lite.graph.reshapes import flatten_before_view

__all__ = ["is_rewritten", "rewrite_for_lowering"]

aten = torch.ops.aten


def rewrite_for_lowering(graph: Graph) -> None:
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


def _as(target: Any, rewrite: Callable[[Graph, Node], None] | None = None) -> Callable[[Graph, Node], None]:
    """For an operator that is the same as another one, and rewritten like it."""

    def retarget(graph: Graph, node: Node) -> None:
        node.target = target
        if rewrite is not None:
            rewrite(graph, node)

    return retarget


def _count_from_first(graph: Graph, node: Node) -> None:
    # IREE's compiler crashes on scatters along a negative dimension.
    source, dim, *rest = node.args
    assert isinstance(source, Node)
    assert isinstance(dim, int)
    node.args = (source, dim % max(source.meta["val"].dim(), 1), *rest)


def _full(graph: Graph, node: Node) -> None:
    full = call_with_meta(graph, aten.full.default, ([], node.args[0]), node, dtype=node.meta["val"].dtype)
    node.replace_all_uses_with(full)


_REWRITES = {
    **dict.fromkeys((aten.view.default, aten._unsafe_view.default, aten.reshape.default), flatten_before_view),
    **dict.fromkeys(ALONG_DIMENSION, _count_from_first),
    aten.true_divide.Tensor: _as(aten.div.Tensor),
    aten.index.Tensor: flatten_index,
    aten._unsafe_index.Tensor: _as(aten.index.Tensor, flatten_index),
    aten.index_put.default: flatten_index_put,
    aten._unsafe_index_put.default: _as(aten.index_put.default, flatten_index_put),
    torch.ops.prims.scalar_tensor.default: _full,
    **numerics.REWRITES,
    aten.squeeze.dims: _squeeze_dims,
}


def is_rewritten(target: Any) -> bool:
    """Whether calls of an operator are replaced or changed by these rewrites."""
    return target in _REWRITES
