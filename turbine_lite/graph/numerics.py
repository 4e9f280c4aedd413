"""Rewrites that give eager's values where torch-mlir's and IREE's lowerings do not: NaN, powers, half precision."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Graph, Node

from turbine_lite.graph.insertion import call_with_meta

__all__ = ["REWRITES", "round_float_scalars"]

aten = torch.ops.aten


def round_float_scalars(graph: Graph) -> None:
    """Round Python floats to float32, to nearest; for graphs without float64 tensors, in place.

    IREE's demotion of float64 constants rounds towards zero, so ``1.5 * 1.3333333333333333`` would fall short of 2.
    """
    for node in graph.nodes:
        if node.op == "call_function":
            node.args = torch.fx.node.map_aggregate(node.args, _rounded)
            node.kwargs = torch.fx.node.map_aggregate(node.kwargs, _rounded)


def _rounded(argument: Any) -> Any:
    return torch.tensor(argument, dtype=torch.float32).item() if type(argument) is float else argument


def _is_float(node: Any) -> bool:
    value = node.meta["val"] if isinstance(node, Node) else None
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _again(graph: Graph, node: Node, args: tuple[Any, ...] | None = None) -> Node:
    """The same call once more, to be part of the replacement of the first."""
    return call_with_meta(graph, node.target, node.args if args is None else args, node, **node.kwargs)


def _keep_nan(graph: Graph, node: Node) -> None:
    """clamp, maximum, minimum: NaN in an operand must come out; IREE's comparisons lose it."""
    operands = [argument for argument in (*node.args, *node.kwargs.values()) if _is_float(argument)]
    if not operands or not node.meta["val"].is_floating_point():
        return
    result = _again(graph, node)
    dtype = node.meta["val"].dtype
    for operand in reversed(operands):
        assert isinstance(operand, Node)
        is_nan = call_with_meta(graph, aten.isnan.default, (operand,), node)
        if operand.meta["val"].dtype is not dtype:
            operand = call_with_meta(graph, torch.ops.prims.convert_element_type.default, (operand, dtype), node)
        result = call_with_meta(graph, aten.where.self, (is_nan, operand, result), node)
    node.replace_all_uses_with(result)


def _isfinite(graph: Graph, node: Node) -> None:
    # torch-mlir asks only whether |x| differs from infinity, or has no lowering.
    if _is_float(node.args[0]):
        size = call_with_meta(graph, aten.abs.default, (node.args[0],), node)
        node.replace_all_uses_with(call_with_meta(graph, aten.lt.Scalar, (size, math.inf), node))


def _compare_with_itself(graph: Graph, node: Node) -> None:
    # ``x == x`` asks for NaN; torch-mlir folds it to True.
    left, right = node.args
    if left is not right or not _is_float(left):
        return
    result = call_with_meta(graph, aten.isnan.default, (left,), node)
    if node.target is not aten.ne.Tensor:
        result = call_with_meta(graph, aten.logical_not.default, (result,), node)
    node.replace_all_uses_with(result)


def _is_product(exponent: Any) -> bool:
    """Whether a power can be written as a short product, a root or the reciprocal of one."""
    return isinstance(exponent, (int, float)) and abs(exponent) in (0.5, 1, 2, 3, 4)


def _power_as_product(graph: Graph, node: Node) -> None:
    # The general lowering gives 0 ** -1 the wrong sign, and costs far more.
    base, exponent = node.args
    if not _is_float(base) or not _is_product(exponent):
        return
    assert isinstance(base, Node)
    assert isinstance(exponent, (int, float))
    if abs(exponent) == 0.5:
        result = call_with_meta(graph, aten.sqrt.default, (base,), node)
    else:
        result = base
        for _ in range(int(abs(exponent)) - 1):
            result = call_with_meta(graph, aten.mul.Tensor, (result, base), node)
    if exponent < 0:
        result = call_with_meta(graph, aten.reciprocal.default, (result,), node)
    node.replace_all_uses_with(result)


def _negate_integer(graph: Graph, node: Node) -> None:
    # torch-mlir negates integers in floating point.
    if not _is_float(node.args[0]):
        node.replace_all_uses_with(call_with_meta(graph, aten.mul.Scalar, (node.args[0], -1), node))


def _floor_division(graph: Graph, node: Node) -> None:
    # torch-mlir divides integers in floating point to round down; to round towards zero it uses integer division.
    divides_down = node.kwargs.get("rounding_mode") == "floor" or "floor_divide" in str(node.target)
    if not divides_down or node.meta["val"].is_floating_point():
        return  # floating-point numbers have an expansion
    dividend, divisor = node.args
    by_scalar = not isinstance(divisor, Node)

    def call(name: str, *args: Any, **kwargs: Any) -> Node:
        overload = getattr(getattr(aten, name), "Scalar" if not isinstance(args[1], Node) else "Tensor")
        return call_with_meta(graph, overload, args, node, **kwargs)

    divide = aten.div.Scalar_mode if by_scalar else aten.div.Tensor_mode
    quotient = call_with_meta(graph, divide, (dividend, divisor), node, rounding_mode="trunc")
    inexact = call("ne", call("mul", quotient, divisor), dividend)
    negative = call("lt", dividend, 0)
    if by_scalar:
        assert isinstance(divisor, int)
        differs = negative if divisor > 0 else call("ge", dividend, 0)
    else:
        differs = call("ne", negative, call("lt", divisor, 0))
    too_large = call_with_meta(graph, aten.logical_and.default, (inexact, differs), node)
    lower = call("sub", quotient, 1)
    node.replace_all_uses_with(call_with_meta(graph, aten.where.self, (too_large, lower, quotient), node))


def _gelu_with_tanh(graph: Graph, node: Node) -> None:
    # torch-mlir's lowering has 0.797724 for sqrt(2 / pi): wrong from the fourth digit on.
    if node.kwargs.get("approximate") != "tanh":
        return
    source = node.args[0]

    def call(op: Any, *args: Any) -> Node:
        return call_with_meta(graph, op, args, node)

    cube = call(aten.mul.Tensor, call(aten.mul.Tensor, source, source), source)
    inner = call(aten.add.Tensor, source, call(aten.mul.Scalar, cube, 0.044715))
    tanh = call(aten.tanh.default, call(aten.mul.Scalar, inner, math.sqrt(2 / math.pi)))
    node.replace_all_uses_with(
        call(aten.mul.Tensor, call(aten.mul.Scalar, source, 0.5), call(aten.add.Scalar, tanh, 1.0))
    )


def _accumulate_in_float32(graph: Graph, node: Node) -> None:
    # IREE adds float16 and bfloat16 in their own precision, eager in float32.
    source = node.args[0]
    narrow = (torch.float16, torch.bfloat16)
    if not _is_float(source) or node.meta["val"].dtype not in narrow:
        return
    assert isinstance(source, Node)
    convert = torch.ops.prims.convert_element_type.default
    if source.meta["val"].dtype in narrow:
        source = call_with_meta(graph, convert, (source, torch.float32), node)
    kwargs = {name: value for name, value in node.kwargs.items() if name != "dtype"}
    wide = call_with_meta(graph, node.target, (source, *node.args[1:]), node, **kwargs)
    node.replace_all_uses_with(call_with_meta(graph, convert, (wide, node.meta["val"].dtype), node))


REWRITES = {
    aten.clamp.default: _keep_nan,
    aten.clamp.Tensor: _keep_nan,
    aten.clamp_min.default: _keep_nan,
    aten.clamp_max.default: _keep_nan,
    aten.clamp_min.Tensor: _keep_nan,
    aten.clamp_max.Tensor: _keep_nan,
    aten.hardtanh.default: _keep_nan,
    aten.maximum.default: _keep_nan,
    aten.minimum.default: _keep_nan,
    aten.isfinite.default: _isfinite,
    aten.eq.Tensor: _compare_with_itself,
    aten.ne.Tensor: _compare_with_itself,
    aten.le.Tensor: _compare_with_itself,
    aten.ge.Tensor: _compare_with_itself,
    aten.gelu.default: _gelu_with_tanh,
    aten.neg.default: _negate_integer,
    aten.div.Tensor_mode: _floor_division,
    aten.div.Scalar_mode: _floor_division,
    aten.floor_divide.default: _floor_division,
    aten.floor_divide.Scalar: _floor_division,
    aten.pow.Tensor_Scalar: _power_as_product,
    aten.sum.default: _accumulate_in_float32,
    aten.sum.dim_IntList: _accumulate_in_float32,
    aten.mean.default: _accumulate_in_float32,
    aten.mean.dim: _accumulate_in_float32,
    aten.prod.default: _accumulate_in_float32,
    aten.prod.dim_int: _accumulate_in_float32,
    aten.cumsum.default: _accumulate_in_float32,
}
