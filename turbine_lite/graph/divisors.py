"""Integer division by zero, for which eager raises an error and the processor ends the process.

The zeros among the divisors are counted, see ``graph/bounds.py``. What is divided by is never zero: not for a zero,
and not in the lanes beyond the end of a vector, which IREE computes with zeros where sizes are dynamic. Nor is it -1,
by which the least number has no quotient: eager gives that number again.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch._prims_common import is_integer_dtype
from torch.fx import Graph, Node

from turbine_lite.graph.indicator import nonzero_indicator
from turbine_lite.graph.insertion import call_with_meta

__all__ = ["count_zero_divisors", "guard_divisors", "is_integer_division"]

aten = torch.ops.aten

_REMAINDERS = frozenset({aten.remainder.Tensor, aten.fmod.Tensor})
_DIVISIONS = frozenset(
    {
        *(*_REMAINDERS, aten.remainder.Scalar, aten.fmod.Scalar, aten.floor_divide.default, aten.floor_divide.Scalar),
        *(aten.div.Tensor_mode, aten.div.Scalar_mode),
    }
)


def is_integer_division(node: Node) -> bool:
    """Whether a call divides integers by integers, with or without a remainder."""
    return node.target in _DIVISIONS and is_integer_dtype(node.meta["val"].dtype)


def count_zero_divisors(graph: Graph, node: Node) -> Node:
    """Insert, before a division by a tensor, the number of zeros in it: int64."""

    def call(op: Any, *args: Any) -> Node:
        return call_with_meta(graph, op, args, node)

    divisor = node.args[1]
    assert isinstance(divisor, Node)
    with graph.inserting_before(node):
        if divisor.meta["val"].dtype is not torch.int64:
            divisor = call(torch.ops.prims.convert_element_type.default, divisor, torch.int64)
        is_zero = call(aten.rsub.Scalar, nonzero_indicator(graph, divisor, node), 1)
        return call(aten.sum.default, is_zero)


def guard_divisors(graph: Graph) -> None:
    """Keep zero and -1 from the divisors of all integer divisions, in place; quotients by -1 are right all the same."""
    # Another number for each division: two that shared their divisor would leave it in memory, without the guard.
    stand_ins = itertools.cycle(range(1, 128))
    for node in list(graph.nodes):
        if node.op == "call_function" and is_integer_division(node) and isinstance(node.args[1], Node):
            with graph.inserting_before(node):
                _guard(graph, node, next(stand_ins))


def _guard(graph: Graph, node: Node, stand_in: int) -> None:
    def call(op: Any, *args: Any) -> Node:
        return call_with_meta(graph, op, args, node)

    dividend: Any = node.args[0]
    divisor: Any = node.args[1]
    is_minus_one = call(aten.eq.Scalar, divisor, -1)
    outside = call(aten.logical_or.default, call(aten.eq.Scalar, divisor, 0), is_minus_one)
    node.update_arg(1, call(aten.masked_fill.Scalar, divisor, outside, stand_in))
    with graph.inserting_after(node):
        by_minus_one = call(aten.mul.Scalar, dividend, 0 if node.target in _REMAINDERS else -1)
    with graph.inserting_after(by_minus_one):
        result = call(aten.where.self, is_minus_one, by_minus_one, node)
    node.replace_all_uses_with(result, delete_user_cb=lambda user: user is not result)
