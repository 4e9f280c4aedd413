"""Tensors that an operator writes into while something else still needs them as they were.

IREE writes into the memory of the tensor itself where it can, and overlooks two things:

- What is written may be a part of that very tensor: ``x[1:] = x[:-1]`` then reads what it has written already.
- Equal fills of dynamic size are merged: two scatters into "different" zeros then write into the same memory, and
  each result holds the sum of both.

A tensor that looks computed gets memory of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from turbine_lite.graph.insertion import call_with_meta
from turbine_lite.graph.views import base_of

__all__ = ["keep_targets_apart"]

aten = torch.ops.aten

_WRITES = frozenset(
    {
        *(aten.slice_scatter.default, aten.select_scatter.default, aten.index_put.default),
        *(aten._unsafe_index_put.default, aten.scatter.src, aten.scatter.value, aten.scatter.reduce),
        *(aten.scatter.value_reduce, aten.scatter_add.default, aten.scatter_reduce.two, aten.index_add.default),
        *(aten.index_copy.default, aten.index_fill.int_Scalar, aten.index_fill.int_Tensor),
    }
)

_FILLS = frozenset(
    {
        *(aten.full.default, aten.full_like.default, aten.zeros.default, aten.zeros_like.default),
        *(aten.ones.default, aten.ones_like.default, aten.new_zeros.default, aten.new_ones.default),
        *(aten.new_full.default, aten.empty.memory_format, aten.empty_like.default),
    }
)


def keep_targets_apart(graph: Graph) -> None:
    """Make each such tensor look computed, in place."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _WRITES:
            target: Any = node.args[0]
            others = [other for other in _nodes_in(node.args[1:]) if isinstance(other.meta["val"], torch.Tensor)]
            if _is_dynamic_fill(target) or _root(target) in map(_root, others):
                with graph.inserting_before(node):
                    node.args = (_computed(graph, target, others, node), *node.args[1:])


def _nodes_in(arguments: Any) -> list[Node]:
    found: list[Node] = []
    torch.fx.map_arg(arguments, found.append)
    return found


def _is_dynamic_fill(target: Node) -> bool:
    return base_of(target).target in _FILLS and not _is_static(target)


def _is_static(node: Node) -> bool:
    sizes: tuple[object, ...] = tuple(node.meta["val"].shape)
    return all(isinstance(size, int) for size in sizes)


def _root(node: Node) -> Node:
    """The node that ``node`` is computed from alone: IREE may leave out copies and casts between them."""
    while True:
        sources = node.args[1:2] if node.target is aten.copy.default else node.all_input_nodes
        if len(sources) != 1 or not isinstance(sources[0], Node):
            return node
        node = sources[0]


def _computed(graph: Graph, target: Node, others: list[Node], like: Node) -> Node:
    """``target``, as a computation from one number that IREE does not foresee."""

    def call(op: Any, *args: Any, **kwargs: Any) -> Node:
        return call_with_meta(graph, op, args, like, **kwargs)

    source = next(_foreseen_by_nobody([*others, target]), None)
    if source is None:
        return target
    if _is_static(source):
        for dim in range(source.meta["val"].dim()):
            source = call(aten.slice.Tensor, source, dim, 0, 1)
    if source.meta["val"].is_floating_point():
        source = call(aten.isnan.default, source)
    number = call(aten.sum.default, call(torch.ops.prims.convert_element_type.default, source, torch.int64))
    number = call(aten.mul.Scalar, number, 3)  # more than one bit, whatever the range was
    # Bit 1 of a square is zero, which IREE does not know.
    bit = call(aten.bitwise_and.Scalar, call(aten.mul.Tensor, number, number), 2)
    return call(aten.masked_fill.Scalar, target, call(aten.ne.Scalar, bit, 0), 1)


def _foreseen_by_nobody(nodes: list[Node]) -> Iterator[Node]:
    for node in nodes:
        is_empty = _is_static(node) and node.meta["val"].numel() == 0
        if not is_empty and _reads_arguments(node):
            yield node


def _reads_arguments(node: Node) -> bool:
    """Whether a tensor that the region is given has a part in the value, so that it is no constant."""
    pending, seen = [node], {node}
    while pending:
        current = pending.pop()
        if current.op == "placeholder" and isinstance(current.meta["val"], torch.Tensor):
            return True
        further = set(current.all_input_nodes) - seen
        # Of a fill, and of a tensor like another one, the sizes alone are read.
        if current.target not in _FILLS:
            seen |= further
            pending += further
    return False
