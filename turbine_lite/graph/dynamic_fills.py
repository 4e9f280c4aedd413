"""Tensors of one value and of dynamic size that an operator writes into.

IREE merges equal ones and does not copy them for each that writes: two scatters into "different" zeros then write into
the same memory, and each result holds the sum of both. It does copy what it takes for computed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from turbine_lite.graph.insertion import call_with_meta
from turbine_lite.graph.views import base_of

__all__ = ["keep_fills_apart"]

aten = torch.ops.aten

_FILLS = frozenset(
    {
        *(aten.full.default, aten.full_like.default, aten.zeros.default, aten.zeros_like.default),
        *(aten.ones.default, aten.ones_like.default, aten.new_zeros.default, aten.new_full.default),
    }
)

# The position, among the arguments, of the index or of what is written.
_WRITES = {
    **dict.fromkeys((aten.slice_scatter.default, aten.select_scatter.default), 1),
    aten.index_put.default: 1,
    aten._unsafe_index_put.default: 1,
    **dict.fromkeys((aten.scatter.src, aten.scatter.value, aten.scatter.reduce, aten.scatter.value_reduce), 2),
    **dict.fromkeys((aten.scatter_add.default, aten.scatter_reduce.two, aten.index_add.default), 2),
    **dict.fromkeys((aten.index_copy.default, aten.index_fill.int_Scalar, aten.index_fill.int_Tensor), 2),
}


def keep_fills_apart(graph: Graph) -> None:
    """Make each such tensor look computed: from the index, or else the numbers, of what writes into it; in place."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _WRITES and _is_dynamic_fill(node.args[0]):
            index = node.args[_WRITES[node.target]]
            index = next((i for i in index if isinstance(i, Node)), None) if isinstance(index, (list, tuple)) else index
            if isinstance(index, Node):
                with graph.inserting_before(node):
                    node.replace_input_with(node.args[0], _depending_on(graph, node.args[0], index, node))


def _is_dynamic_fill(source: Any) -> bool:
    if not isinstance(source, Node) or base_of(source).target not in _FILLS:
        return False
    sizes: tuple[object, ...] = tuple(source.meta["val"].shape)
    return not all(isinstance(size, int) for size in sizes)


def _depending_on(graph: Graph, source: Node, index: Node, like: Node) -> Node:
    def call(op: Any, *args: Any, **kwargs: Any) -> Node:
        return call_with_meta(graph, op, args, like, **kwargs)

    # Bit 1 of a square is zero, which IREE does not know, so it takes the result for data.
    if index.meta["val"].is_floating_point():
        index = call(aten.isnan.default, index)
    total = call(aten.sum.default, call(torch.ops.prims.convert_element_type.default, index, torch.int64))
    square = call(aten.mul.Tensor, total, total)
    bit = call(aten.bitwise_and.Scalar, square, 2)
    return call(aten.masked_fill.Scalar, source, call(aten.ne.Scalar, bit, 0), 1)
