"""Matmuls with parameters for oneDNN, with packed weights, fused with the sum or the activation that follows."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from turbine_lite.graph.extern.fusing import activation_of, bounds_of, call_kernel, only_user, summand
from turbine_lite.graph.extern.kernels import HAS_ONEDNN, NO_ACTIVATION, linear, pack_linear
from turbine_lite.graph.insertion import call_with_meta
from turbine_lite.graph.once import ONCE, depends_on_parameters_only

__all__ = ["can_be_packed", "pack"]

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten._unsafe_view.default)


def can_be_packed(node: Node) -> bool:
    """Whether a call is ``x @ weight`` or ``x @ weight + bias``, in float32, with parameters as weight and bias."""
    if node.target not in (aten.mm.default, aten.addmm.default) or node.kwargs:
        return False
    x, weight, bias = _operands(node)
    return (
        HAS_ONEDNN
        and all(operand.meta["val"].dtype is torch.float32 for operand in (x, weight))
        and depends_on_parameters_only(weight)
        and not depends_on_parameters_only(x)
        and (bias is None or (bias.meta["val"].dim() == 1 and bias.meta["val"].dtype is torch.float32))
    )


def pack(graph: Graph, node: Node) -> None:
    """Replace a matmul that :func:`can_be_packed`, and what can be fused with it: a sum or an activation."""
    x, weight, bias = _operands(node)
    view = only_user(node)
    last = view if view is not None and view.target in _VIEWS else node
    other, last = summand(last)
    following = only_user(last)
    activation = activation_of(following) if other is None else None
    bounds = bounds_of(following)
    if following is not None and (activation is not None or bounds is not None):
        last = following
    with graph.inserting_before(node):
        packed = call_kernel(graph, pack_linear, (weight, x.meta["val"].shape[0]), weight.meta["val"], node)
        packed.meta[ONCE] = True
    with graph.inserting_before(last):
        rows = None if other is None else _like(graph, other, node)
        arguments = (x, rows, packed, bias, activation or NO_ACTIVATION, bounds)
        fused = call_kernel(graph, linear, arguments, node.meta["val"], node)
        result = fused if last.meta["val"].shape == fused.meta["val"].shape else _like(graph, fused, last)
    last.replace_all_uses_with(result)
    graph.eliminate_dead_code()


def _like(graph: Graph, node: Node, other: Node) -> Node:
    """``node`` with the shape of ``other``, row-major."""
    shape = list(other.meta["val"].shape)
    if not node.meta["val"].is_contiguous():
        node = call_with_meta(graph, aten.clone.default, (node,), node, memory_format=torch.contiguous_format)
    return call_with_meta(graph, aten.view.default, (node, shape), node)


def _operands(node: Node) -> tuple[Node, Node, Node | None]:
    arguments: Any = node.args
    if node.target is aten.mm.default:
        return arguments[0], arguments[1], None
    return arguments[1], arguments[2], arguments[0]
