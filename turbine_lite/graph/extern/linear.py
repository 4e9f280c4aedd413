"""Matmuls with parameters for oneDNN's kernel, with packed weights, fused with the activation that follows."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from turbine_lite.graph.extern.fusing import activation_of, bounds_of, call_kernel, only_user
from turbine_lite.graph.extern.kernels import HAS_ONEDNN, NO_ACTIVATION, linear, pack_linear
from turbine_lite.graph.once import ONCE, depends_on_parameters_only

__all__ = ["can_be_packed", "pack"]

aten = torch.ops.aten


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
    """Replace a matmul that :func:`can_be_packed`, and an activation that follows it."""
    x, weight, bias = _operands(node)
    view = only_user(node)
    is_viewed = view is not None and view.target in (aten.view.default, aten._unsafe_view.default)
    following = only_user(view) if view is not None and is_viewed else view
    activation, bounds = activation_of(following), bounds_of(following)
    with graph.inserting_before(node):
        packed = call_kernel(graph, pack_linear, (weight, x.meta["val"].shape[0]), weight.meta["val"], node)
        packed.meta[ONCE] = True
        arguments = (x, packed, bias, activation or NO_ACTIVATION, bounds)
        fused = call_kernel(graph, linear, arguments, node.meta["val"], node)
    if following is not None and (activation or bounds):
        following.replace_all_uses_with(view if view is not None and is_viewed else node)
    node.replace_all_uses_with(fused)
    graph.eliminate_dead_code()


def _operands(node: Node) -> tuple[Node, Node, Node | None]:
    arguments: Any = node.args
    if node.target is aten.mm.default:
        return arguments[0], arguments[1], None
    return arguments[1], arguments[2], arguments[0]
