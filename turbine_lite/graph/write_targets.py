"""Tensors that an operator writes into while something else still needs them as they were.

IREE writes into the memory of the tensor itself where it can, and overlooks three things:

- What is written may be computed from that very tensor. The kernel's result is put where it is to be written (the pass
  is ``iree-stream-emplace-allocations``), so ``x[1:] = x[1:] - x[:-1]`` reads what it has written already.
- Equal fills are merged, of dynamic size always: two scatters into "different" zeros then write into the same memory,
  and each result holds the sum of both.
- Concatenations are writes into memory that is not initialised. Two of equal shape that begin with the same tensor have
  their first write in common, and then share all of the memory: ``cat([z, a])`` and ``cat([z, b])`` are equal.

A tensor that looks computed gets memory of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from turbine_lite.graph.index_operators import PUTS, WRITES_ALONG_DIMENSION
from turbine_lite.graph.insertion import call_with_meta
from turbine_lite.graph.sizes import is_static
from turbine_lite.graph.views import base_of, is_view
from turbine_lite.graph.work import CONTRACTIONS

__all__ = ["keep_targets_apart"]

aten = torch.ops.aten

_WRITES = frozenset(
    {aten.slice_scatter.default, aten.select_scatter.default, *PUTS, *WRITES_ALONG_DIMENSION},
)

_FILLS = frozenset(
    {
        *(aten.full.default, aten.full_like.default, aten.zeros.default, aten.zeros_like.default),
        *(aten.ones.default, aten.ones_like.default, aten.new_zeros.default, aten.new_ones.default),
        *(aten.new_full.default, aten.empty.memory_format, aten.empty_like.default),
    }
)


_COPIES = frozenset({aten.clone.default, aten.alias.default, aten.detach.default, aten.lift_fresh_copy.default})


def keep_targets_apart(graph: Graph) -> None:
    """Make each such tensor look computed, in place."""
    begun: set[object] = set()
    filled: set[object] = set()
    # No two stand-ins may be equal, or they are merged in turn.
    numbers = itertools.count()
    for node in list(graph.nodes):
        if node.target in (aten.cat.default, aten.stack.default):
            _begin_apart(graph, node, begun, numbers)
        elif node.op == "call_function" and node.target in _WRITES:
            target: Any = node.args[0]
            others = [other for other in _nodes_in(node.args[1:]) if isinstance(other.meta["val"], torch.Tensor)]
            if _is_like_another_fill(target, filled) or _may_be_read_for(others, _root(target)):
                with graph.inserting_before(node):
                    copy = _computed(graph, target, others, node, next(numbers), value=_other_than(target))
                node.args = (copy, *node.args[1:])


def _begin_apart(graph: Graph, node: Node, begun: set[object], numbers: Iterator[int]) -> None:
    """Let a concatenation begin with a copy of its first tensor, if another one has begun like it."""
    tensors, *rest = node.args
    assert isinstance(tensors, (list, tuple))
    first: Any = tensors[0]
    key = (str(tuple(node.meta["val"].shape)), str(rest), _expression(first))
    if key in begun:
        with graph.inserting_before(node):
            copy = _computed(graph, first, _nodes_in(tensors[1:]), node, next(numbers))
        node.args = ([copy, *tensors[1:]], *rest)
    begun.add(key)


def _expression(node: Node) -> object:
    """Equal for nodes that are the same view of the same tensor."""
    if node.target in _COPIES:
        return _expression(node.all_input_nodes[0])
    if is_view(node) and len(node.all_input_nodes) == 1:
        arguments = torch.fx.map_arg((node.args[1:], node.kwargs), str)
        return node.target, str(arguments), _expression(node.all_input_nodes[0])
    return node


def _nodes_in(arguments: Any) -> list[Node]:
    found: list[Node] = []
    torch.fx.map_arg(arguments, found.append)
    return found


def _is_like_another_fill(target: Node, filled: set[object]) -> bool:
    """Whether a fill may be taken for another one that is written into: of dynamic size, or not the first of a kind."""
    value = target.meta["val"]
    if base_of(target).target not in _FILLS:
        return False
    if not is_static(value.shape):
        return True
    # Views of a fill are fills of another shape.
    key = (value.dtype, value.numel(), _filled_with(target))
    is_second = key in filled
    filled.add(key)
    return is_second


def _filled_with(target: Node) -> Any:
    fill = base_of(target)
    numbers = [argument for argument in fill.args[1:] if isinstance(argument, (bool, int, float))]
    return numbers[0] if numbers else int("ones" in str(fill.target))


def _other_than(target: Node) -> int:
    """A number that the elements of a fill do not have: putting in the same one would change nothing."""
    return 2 if base_of(target).target in _FILLS and _filled_with(target) == 1 else 1


def _sources(node: Node) -> list[Node]:
    """The nodes whose values ``node`` is computed from."""
    return _nodes_in(node.args[1]) if node.target is aten.copy.default else node.all_input_nodes


def _root(node: Node) -> Node:
    """The node that ``node`` is computed from alone: IREE may leave out copies and casts between them."""
    while len(sources := _sources(node)) == 1:
        node = sources[0]
    return node


def _may_be_read_for(nodes: list[Node], root: Node) -> bool:
    """Whether one kernel may read ``root`` to compute one of ``nodes``."""
    pending = [(node, False) for node in nodes]
    seen = set(pending)
    while pending:
        node, crossed = pending.pop()
        if node is root:
            return True
        # A kernel computes at most one of these, so it does not read what lies behind two of them.
        is_contraction = node.target in CONTRACTIONS
        if not (crossed and is_contraction):
            further = {(source, crossed or is_contraction) for source in _sources(node)} - seen
            seen |= further
            pending += further
    return False


def _computed(graph: Graph, target: Node, others: list[Node], like: Node, which: int, *, value: int = 1) -> Node:
    """``target``, as a computation from one number that IREE does not foresee; another one for each ``which``."""

    def call(op: Any, *args: Any, **kwargs: Any) -> Node:
        return call_with_meta(graph, op, args, like, **kwargs)

    # Not of a computed tensor: the compiler does not end where a tensor is computed anew for each element it fills.
    source = _argument_read_by([*others, target])
    if source is None:
        return target
    for dim in range(source.meta["val"].dim()):
        source = call(aten.slice.Tensor, source, dim, 0, 1)
    if source.meta["val"].is_floating_point():
        source = call(aten.isnan.default, source)
    number = call(aten.sum.default, call(torch.ops.prims.convert_element_type.default, source, torch.int64))
    number = call(aten.mul.Scalar, number, 3)  # more than one bit, whatever the range was
    number = call(aten.add.Scalar, number, which)
    # Bit 1 of a square is zero, of any square, which IREE does not know.
    bit = call(aten.bitwise_and.Scalar, call(aten.mul.Tensor, number, number), 2)
    return call(aten.masked_fill.Scalar, target, call(aten.ne.Scalar, bit, 0), value)


def _argument_read_by(nodes: list[Node]) -> Node | None:
    """A tensor that the region is given and that has a part in one of the values, which makes that no constant."""
    pending, seen = nodes[::-1], set(nodes)
    while pending:
        node = pending.pop()
        if node.op == "placeholder" and _has_elements(node.meta["val"]):
            return node
        # Of a fill, and of a tensor like another one, the sizes alone are read.
        further = [] if node.target in _FILLS else [source for source in node.all_input_nodes if source not in seen]
        seen.update(further)
        pending += further
    return None


def _has_elements(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not (is_static(value.shape) and value.numel() == 0)
