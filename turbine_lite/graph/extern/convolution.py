"""Convolutions for oneDNN's kernel, with packed weights, fused with what follows them.

Folded into the weights: batch norm as inference computes it. Done by the kernel: a sum with another tensor, and the
activation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from turbine_lite.graph.extern.fusing import call_kernel, epilogue_of, erase_unused, only_user
from turbine_lite.graph.extern.kernels import HAS_ONEDNN, convolution, fold_bias, fold_weight, pack_convolution
from turbine_lite.graph.once import ONCE, depends_on_parameters_only

__all__ = ["can_be_packed", "pack"]

aten = torch.ops.aten

_BATCH_NORM = aten._native_batch_norm_legit_no_training.default


def can_be_packed(node: Node) -> bool:
    """Whether a call is a 2-d convolution of float32 images with parameters as weights."""
    if node.target is not aten.convolution.default or not HAS_ONEDNN:
        return False
    arguments: Any = node.args
    x, weight, bias, _, _, _, transposed, *_ = arguments
    return (
        not transposed
        and x.meta["val"].dim() == 4
        and all(n.meta["val"].dtype is torch.float32 for n in (x, weight))
        and depends_on_parameters_only(weight)
        and (not isinstance(bias, Node) or depends_on_parameters_only(bias))
    )


def pack(graph: Graph, node: Node) -> None:
    """Replace a convolution that :func:`can_be_packed`, and what can be fused with it."""
    arguments: Any = node.args
    x, weight, bias, stride, padding, dilation, _, _, groups = arguments
    last = node
    following = only_user(last)
    if following is not None and _is_foldable(following):
        with graph.inserting_before(node):
            weight, bias = _folded(graph, weight, bias, following, node)
        last = next(iter(following.users))
    other, activation, bounds, last = epilogue_of(last)
    value = last.meta["val"]
    with graph.inserting_before(node):
        packing = (weight, padding, stride, dilation, groups, list(x.meta["val"].shape))
        packed = call_kernel(graph, pack_convolution, packing, weight.meta["val"], node)
        packed.meta[ONCE] = True
    with graph.inserting_after(last):
        operands = (x, other, packed, bias, padding, stride, dilation, groups, activation, bounds)
        fused = call_kernel(graph, convolution, operands, value, node)
    last.replace_all_uses_with(fused)
    erase_unused(last)


def _is_foldable(node: Node) -> bool:
    """Whether a node is batch norm with parameters, of which nothing but the result is used."""
    if node.target is not _BATCH_NORM or len(node.users) != 1:
        return False
    item: Any = next(iter(node.users)).args[1]
    parameters = node.all_input_nodes[1:]
    return bool(item == 0) and all(
        depends_on_parameters_only(p) and p.meta["val"].dtype is torch.float32 for p in parameters
    )


def _folded(graph: Graph, weight: Node, bias: Any, norm: Node, like: Node) -> tuple[Node, Node]:
    """Weight and bias of a convolution that is batch norm of one with ``weight`` and ``bias``."""
    arguments: Any = norm.args
    _, gamma, beta, mean, variance, _, epsilon = arguments
    scaled = call_kernel(graph, fold_weight, (weight, gamma, variance, epsilon), weight.meta["val"], like)
    shift = call_kernel(graph, fold_bias, (bias, gamma, beta, mean, variance, epsilon), mean.meta["val"], like)
    shift.meta[ONCE] = True
    return scaled, shift
