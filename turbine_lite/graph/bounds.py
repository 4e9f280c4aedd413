"""Indices out of range: eager raises an IndexError, IREE reads or writes whatever lies there.

Every index that is not known to be in range is forced into it, so that no program leaves its memory, and the number of
indices for which that made a difference becomes a last, hidden result. Where it is not 0 the caller of the program
runs the region in eager, which raises what eager raises. The integers divided by that are zero are counted with them.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Graph, GraphModule, Node

from turbine_lite.errors import CompilationError
from turbine_lite.graph.divisors import count_zero_divisors, is_integer_division
from turbine_lite.graph.index_operators import ALONG_DIMENSION
from turbine_lite.graph.indicator import nonzero_indicator
from turbine_lite.graph.insertion import call_with_meta, size_of
from turbine_lite.graph.support import reason_for

__all__ = ["check_arguments"]

aten = torch.ops.aten

# (tensor, list of an index or None for each dimension, ...); negative indices count from the end.
_LISTS = frozenset({aten.index.Tensor, aten.index_put.default})
# The same, made by PyTorch's decompositions. Their indices are valid, but for nearest upsampling with a scale that
# contradicts the size: eager's kernel then stays at the edge.
_TRUSTED_LISTS = frozenset({aten._unsafe_index.Tensor, aten._unsafe_index_put.default})


def check_arguments(gm: GraphModule, constants: Mapping[Node, torch.Tensor], *, count: bool = True) -> bool:
    """Force all indices of a region into their range, in place; returns whether a count was added to the results.

    The count is of bad indices and of integer divisors of zero.

    Args:
        gm: a region.
        constants: values of the nodes that do not depend on its arguments.
        count: False where nobody can be told: indices are forced all the same.

    Raises:
        CompilationError: a constant index is out of range, or a constant divisor zero.
    """
    checks = _Checks(gm, constants, count)
    for node in list(gm.graph.nodes):
        if node.op == "call_function":
            checks.of_call(node)
    if not checks.counts:
        return False
    output = gm.graph.output_node()
    with gm.graph.inserting_before(output):
        total = checks.counts[0]
        for more in checks.counts[1:]:
            total = call_with_meta(gm.graph, aten.add.Tensor, (total, more), more)
    results: Any = output.args[0]
    output.args = ((*results, total),)
    return True


class _Checks:
    def __init__(self, gm: GraphModule, constants: Mapping[Node, torch.Tensor], count: bool) -> None:
        self.gm = gm
        self.count = count
        self.graph = gm.graph
        self.constants = constants
        self.counts: list[Node] = []
        # By index, size, whether it may be negative and whether it is counted.
        self.forced: dict[tuple[Node, str, bool, bool], Node] = {}

    def of_call(self, node: Node) -> None:
        arguments: Any = node.args
        if node.target in _LISTS or node.target in _TRUSTED_LISTS:
            source, indices, *rest = arguments
            trusted = node.target in _TRUSTED_LISTS
            forced = [
                self._force(node, index, source, dim, negative=True, counted=not trusted)
                for dim, index in enumerate(indices)
            ]
            node.args = (source, forced, *rest)
        elif node.target in ALONG_DIMENSION:  # which take no negative indices
            source, dim, index, *rest = arguments
            node.args = (source, dim, self._force(node, index, source, dim), *rest)
        elif node.target is aten.embedding.default:
            weight, index, *rest = arguments
            node.args = (weight, self._force(node, index, weight, 0), *rest)
        elif self.count and is_integer_division(node):
            self._count_zeros(node)

    def _count_zeros(self, node: Node) -> None:
        divisor: Any = node.args[1]
        value = self.constants.get(divisor, divisor) if isinstance(divisor, Node) else divisor
        if isinstance(value, Node):
            self.counts.append(count_zero_divisors(self.graph, node))
        else:
            with unset_fake_temporarily():
                has_zero = bool(torch.as_tensor(value == 0).any())
            if has_zero:
                raise _refused(node, "divisor", "divides by a constant of zero")

    def _force(
        self, user: Node, index: Any, source: Node, dim: int, *, negative: bool = False, counted: bool = True
    ) -> Any:
        """``index`` made non-negative and forced into the dimension, and counted where that changed it."""
        if not isinstance(index, Node) or index.meta["val"].dtype not in (torch.int32, torch.int64):
            return index
        size = (source.meta["val"].shape or (1,))[dim]
        if isinstance(size, int) and size == 0:
            return index
        counted = counted and self.count
        key = (index, str(size), negative, counted)
        if key not in self.forced:
            self.forced[key] = self._make_forced(user, index, source, dim, negative=negative, counted=counted)
        return self.forced[key]

    def _make_forced(self, user: Node, index: Node, source: Node, dim: int, *, negative: bool, counted: bool) -> Node:
        size: Any = (source.meta["val"].shape or (1,))[dim]
        if not isinstance(size, int):
            with self.graph.inserting_before(user):
                size = size_of(self.graph, source, dim, user)
                return self._forced(index, size, user, negative=negative, counted=counted)
        if index in self.constants:
            return self._forced_constant(index, size, user, negative=negative, counted=counted)
        before = index.next if index.op != "placeholder" else _behind_placeholders(self.graph)
        with self.graph.inserting_before(before):
            return self._forced(index, size, user, negative=negative, counted=counted)

    def _forced_constant(self, index: Node, size: int, user: Node, *, negative: bool, counted: bool) -> Node:
        value = self.constants[index]
        with unset_fake_temporarily():
            positive = torch.where(value < 0, value + size, value) if negative else value
            forced = positive.clamp(0, size - 1)
            if torch.equal(value, forced):
                return index
            if counted and not torch.equal(positive, forced):
                raise _refused(user, "index", f"a constant index is out of range for size {size}")
        name = f"_forced_{len(self.forced)}_{index.name}"
        self.gm.register_buffer(name, forced, persistent=False)
        with self.graph.inserting_before(index.next):
            literal = self.graph.get_attr(name)
        literal.meta = dict(index.meta)
        return literal

    def _forced(self, index: Node, size: int | Node, user: Node, *, negative: bool, counted: bool) -> Node:
        def call(op: Any, *args: Any, **kwargs: Any) -> Node:
            return call_with_meta(self.graph, op, args, user, **kwargs)

        positive = index
        if negative:
            positive = call(aten.where.self, call(aten.lt.Scalar, index, 0), call(aten.add.Scalar, index, size), index)
        last = size - 1 if isinstance(size, int) else call(operator.sub, size, 1)
        forced = call(aten.clamp.default, positive, 0, last)
        if counted:
            change = nonzero_indicator(self.graph, call(aten.sub.Tensor, positive, forced), user)
            self.counts.append(call(aten.sum.default, change))
        return forced


def _refused(node: Node, kind: str, text: str) -> CompilationError:
    reason = reason_for(node, kind, text)
    return CompilationError(f"cannot compile {reason}", stage="import", reasons=(reason,))


def _behind_placeholders(graph: Graph) -> Node:
    # Layouts of arguments may have put calls between them.
    last: Node = next(node for node in reversed(graph.nodes) if node.op == "placeholder")
    return last.next
