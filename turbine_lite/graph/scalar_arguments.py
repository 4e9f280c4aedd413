"""Numbers among the arguments of operators, and what is compared, as eager converts them: to the dtype computed in.

``x == 0.1`` asks in float32, or bfloat16, whether elements are what 0.1 is there; ``x < 300`` for bytes is ``x < 44``.
Dynamic sizes where torch-mlir wants a tensor, or our rewrites tell numbers from tensors, become tensors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._prims_common import is_integer_dtype
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Graph, Node

from turbine_lite.graph.insertion import call_with_meta

__all__ = ["COMPARISONS", "compare_with_tensors", "convert_scalar_arguments"]

aten = torch.ops.aten

COMPARISONS = frozenset(
    getattr(getattr(aten, name), overload)
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
    for overload in ("Scalar", "Tensor")
)
# For integers alone: of floating-point numbers, those in half precision are computed with wider scalars.
_INTEGER_OPERATORS = frozenset(
    {
        *(aten.div.Scalar_mode, aten.floor_divide.Scalar, aten.remainder.Scalar, aten.fmod.Scalar),
        *(aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default),
    }
)
_OF_TWO_INTEGERS = frozenset(
    {
        *(aten.maximum.default, aten.minimum.default, aten.div.Tensor_mode, aten.floor_divide.default),
        *(aten.remainder.Tensor, aten.fmod.Tensor),
    }
)
# The overloads for two tensors: torch-mlir adds booleans and numbers modulo 2, but not tensors of them.
_BOOLEAN_OPERATORS = {
    **dict.fromkeys((aten.add.Tensor, aten.add.Scalar), aten.add.Tensor),
    **dict.fromkeys((aten.mul.Tensor, aten.mul.Scalar), aten.mul.Tensor),
}
# The overload for two tensors, where a number that is only known in a call will not do.
_OF_TENSORS = {
    aten.div.Scalar_mode: aten.div.Tensor_mode,
    aten.floor_divide.Scalar: aten.floor_divide.default,
    aten.remainder.Scalar: aten.remainder.Tensor,
    aten.fmod.Scalar: aten.fmod.Tensor,
}
# Any number of a type: dtypes follow from the type alone.
_OF_TYPE = {torch.SymInt: 1, torch.SymFloat: 1.0, torch.SymBool: True}


def convert_scalar_arguments(graph: Graph) -> None:
    """Convert the numbers that operators are called with, in place."""
    for node in list(graph.nodes):
        _make_tensors(graph, node)
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
            continue
        value = node.args[0].meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        if node.target in COMPARISONS or (node.target in _OF_TWO_INTEGERS and is_integer_dtype(node.meta["val"].dtype)):
            _convert(node, value)
            _promote(graph, node)
        elif node.target in _INTEGER_OPERATORS and is_integer_dtype(value.dtype):
            _convert(node, value)
        elif node.target in _BOOLEAN_OPERATORS and value.dtype is torch.bool and isinstance(node.args[1], bool):
            with graph.inserting_before(node):
                full = call_with_meta(graph, aten.full.default, ([], node.args[1]), node, dtype=torch.bool)
            node.args = (node.args[0], full, *node.args[2:])
            node.target = _BOOLEAN_OPERATORS[node.target]


def _make_tensors(graph: Graph, node: Node) -> None:
    """Make tensors of the numbers among the operands that are computed from dynamic sizes."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return
    target = _OF_TENSORS.get(node.target, node.target)
    operands = [argument for argument in node.args if isinstance(argument, Node)]
    tensors = [operand.meta["val"] for operand in operands if isinstance(operand.meta["val"], torch.Tensor)]
    for position, (argument, declared) in enumerate(zip(node.args, target._schema.arguments, strict=False)):
        number = _OF_TYPE.get(type(argument.meta["val"])) if isinstance(argument, Node) else None
        if number is None or not isinstance(declared.type, torch.TensorType) or not tensors:
            continue
        dtype = torch.result_type(tensors[0], number)
        with graph.inserting_before(node):
            node.update_arg(position, call_with_meta(graph, aten.full.default, ([], argument), node, dtype=dtype))
        node.target = target


def _convert(node: Node, value: torch.Tensor) -> None:
    node.args = (node.args[0], *(_converted(argument, value) for argument in node.args[1:]))
    node.kwargs = {name: _converted(argument, value) for name, argument in node.kwargs.items()}


def _promote(graph: Graph, node: Node) -> None:
    """Cast two operands to their common dtype.

    torch-mlir compares integers with floating-point numbers in float64, and takes a tensor without dimensions, whose
    dtype does not count, for as wide as it is.
    """
    values: list[Any] = [operand.meta["val"] if isinstance(operand, Node) else operand for operand in node.args[:2]]
    dtype = torch.result_type(*values)
    with graph.inserting_before(node):
        for position, value in enumerate(values):
            is_number = isinstance(value, torch.Tensor) and not value.dtype.is_floating_point
            if is_number and value.dtype is not dtype and not dtype.is_complex:
                cast = torch.ops.prims.convert_element_type.default
                node.update_arg(position, call_with_meta(graph, cast, (node.args[position], dtype), node))


def _converted(argument: Any, value: torch.Tensor) -> Any:
    if not isinstance(argument, (bool, int, float)):
        return argument
    dtype = torch.result_type(value, argument)
    if dtype is value.dtype or dtype.is_floating_point:
        with unset_fake_temporarily():
            exact = torch.float64 if isinstance(argument, float) else torch.int64
            return torch.tensor(argument, dtype=exact).to(dtype).item()
    return argument


def compare_with_tensors(graph: Graph) -> None:
    """Comparisons of floating-point tensors with numbers, as comparisons with tensors of their dtype.

    torch-mlir compares in float64 else, which TOSA has not.
    """
    for node in list(graph.nodes):
        if node.target not in COMPARISONS or node.target._overloadname != "Scalar":
            continue
        tensor, number = node.args
        dtype = tensor.meta["val"].dtype
        if isinstance(number, (int, float)) and dtype.is_floating_point and dtype is not torch.float64:
            with graph.inserting_before(node):
                other = call_with_meta(graph, aten.full.default, ([], number), node, dtype=dtype)
            node.target = getattr(aten, node.target._schema.name.removeprefix("aten::")).Tensor
            node.args = (tensor, other)
