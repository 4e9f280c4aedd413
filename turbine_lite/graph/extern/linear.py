"""Matmuls with parameters for oneDNN or MKL, with packed weights, with the sum or the activation that follows.

Those where packing gains nothing become ``aten.linear`` again, which takes the views around them into one call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from turbine_lite.environment import is_by_intel
from turbine_lite.graph.extern import kernels
from turbine_lite.graph.extern.choose import is_large
from turbine_lite.graph.extern.fusing import VIEWS, call_kernel, epilogue_of, erase_unused, only_user
from turbine_lite.graph.insertion import call_with_meta
from turbine_lite.graph.once import ONCE, depends_on_parameters_only
from turbine_lite.graph.sizes import size_hint

__all__ = ["can_be_packed", "is_of_transposed", "pack", "write_as_linear"]

aten = torch.ops.aten


def _is_matmul(node: Node) -> bool:
    return node.target in (aten.mm.default, aten.addmm.default) and not node.kwargs


def can_be_packed(node: Node) -> bool:
    """Whether a call is ``x @ weight`` or ``x @ weight + bias``, in float32, with parameters as weight and bias.

    It must be large: oneDNN takes 0.03 ms for any. With a single row nothing is gained by packing.
    """
    if not _is_matmul(node):
        return False
    x, weight, bias = _operands(node)
    return (
        kernels.HAS_ONEDNN
        and is_large(node)
        and size_hint(node.meta["val"].shape[0]) > 1
        and all(operand.meta["val"].dtype is torch.float32 for operand in (x, weight))
        and depends_on_parameters_only(weight)
        and not depends_on_parameters_only(x)
        and (bias is None or (bias.meta["val"].dim() == 1 and bias.meta["val"].dtype is torch.float32))
    )


def is_of_transposed(node: Node) -> bool:
    """Whether a call is ``x @ weight.t()``, with or without a bias."""
    if not _is_matmul(node):
        return False
    _, weight, bias = _operands(node)
    return weight.target is aten.t.default and (bias is None or bias.meta["val"].dim() == 1)


def write_as_linear(graph: Graph, node: Node) -> None:
    """Replace a matmul that :func:`is_of_transposed`, and the views around it; ATen's kernel stays the same."""
    x, transposed, bias = _operands(node)
    weight: Any = transposed.args[0]
    x, value, last = _without_views(node, x)
    with graph.inserting_before(node):
        arguments = (x, weight) if bias is None else (x, weight, bias)
        linear = call_kernel(graph, aten.linear.default, arguments, value, node)
    last.replace_all_uses_with(linear)
    erase_unused(last)


def _without_views(node: Node, x: Node) -> tuple[Node, torch.Tensor, Node]:
    """What a matmul of ``x`` is of and makes where the views around it, as rows and back, are left out.

    Returns:
        The argument, the value of the result, and the last node that makes it now.
    """
    user = only_user(node)
    if user is not None and user.target in VIEWS and x.target in VIEWS:
        source = x.args[0]
        if isinstance(source, Node) and _is_rows_of(source, x, user):
            return source, user.meta["val"], user
    return x, node.meta["val"], node


def pack(graph: Graph, node: Node) -> None:
    """Replace a matmul that :func:`can_be_packed`, and what can be fused with it: a sum or an activation.

    A matmul between views, of more dimensions as rows and back, reads and makes the tensors of more dimensions.
    """
    x, weight, bias = _operands(node)
    rows = x.meta["val"].shape[0]
    x, value, last = _without_views(node, x)
    user = only_user(last)
    if last is node and user is not None and user.target in VIEWS:
        last = user
    other, activation, bounds, last = epilogue_of(last)
    by_mkl = kernels.HAS_MKL and is_by_intel()
    with graph.inserting_before(node):
        pack_weight = kernels.pack_linear_for_mkl if by_mkl else kernels.pack_linear
        packed = call_kernel(graph, pack_weight, (weight, rows), weight.meta["val"], node)
        packed.meta[ONCE] = True
    with graph.inserting_before(last):
        summed = None if other is None else _like(graph, other, value)
        # MKL takes 0.87 of oneDNN's time there, and 0.95 with a GELU, which oneDNN fuses.
        matmul: Any = kernels.linear_by_mkl if by_mkl else kernels.linear
        weights: tuple[Any, ...] = (packed, weight, rows) if by_mkl else (packed,)
        fused = call_kernel(graph, matmul, (x, summed, *weights, bias, activation, bounds), value, node)
        result = _like(graph, fused, last.meta["val"])
    last.replace_all_uses_with(result)
    erase_unused(last)


def _is_rows_of(source: Node, rows: Node, view: Node) -> bool:
    """Whether ``view`` undoes for the result what ``rows`` does to the argument."""
    before, after = source.meta["val"], view.meta["val"]
    return bool(
        before.is_contiguous()
        and before.shape[-1:] == rows.meta["val"].shape[-1:]
        and before.shape[:-1] == after.shape[:-1]
    )


def _like(graph: Graph, node: Node, value: torch.Tensor) -> Node:
    """``node`` with the shape of ``value``, row-major; itself if it is that."""
    mine = node.meta["val"]
    if mine.shape == value.shape and mine.is_contiguous():
        return node
    if not mine.is_contiguous():
        node = call_with_meta(graph, aten.clone.default, (node,), node, memory_format=torch.contiguous_format)
    return call_with_meta(graph, aten.view.default, (node, list(value.shape)), node)


def _operands(node: Node) -> tuple[Node, Node, Node | None]:
    arguments: Any = node.args
    if node.target is aten.mm.default:
        return arguments[0], arguments[1], None
    return arguments[1], arguments[2], arguments[0]
