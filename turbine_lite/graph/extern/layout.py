"""Memory layouts of a graph in which some kernels want and give images channels last.

The layouts of what lies between follow from those; where the captured one matters, above all for results, it is
restored.
"""

from __future__ import annotations

import contextlib
import operator
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._ops import OpOverload
from torch.fx import Graph, Node

from turbine_lite.graph.extern.kernels import convolution
from turbine_lite.graph.insertion import call_with_meta
from turbine_lite.graph.signature import dense_order, inverse
from turbine_lite.graph.views import is_view

__all__ = ["settle_layouts"]

aten = torch.ops.aten

# They say where elements lie in memory, or make something else of another order.
_OF_MEMORY = frozenset(
    {
        aten.as_strided.default,
        aten.as_strided_copy.default,
        aten.as_strided_scatter.default,
        aten.view.dtype,
        aten.view_as_complex.default,
        aten.view_as_real.default,
        aten.unfold.default,
        aten.sym_stride.int,
        aten.sym_storage_offset.default,
        aten.set_.source_Tensor,
    }
)


def settle_layouts(graph: Graph) -> None:
    """Give kernels what they want, and compute the fake values of all that follows anew, in place."""
    original = {node: node.meta.get("val") for node in graph.nodes}
    targets = {node: node.target for node in graph.nodes}
    views: dict[Node, Node] = {}
    converted: dict[tuple[Node, object], Node] = {}

    def arranged(node: Node, strides: tuple[int, ...] | None) -> Node:
        """The tensor with these strides, or channels last."""
        value = node.meta["val"]
        if value.stride() == strides or (strides is None and value.is_contiguous(memory_format=torch.channels_last)):
            return node
        if (node, strides) not in converted:
            with graph.inserting_before(_first_place_after(graph, node)):
                converted[node, strides] = _copy(graph, node, original.get(node), strides)
        return converted[node, strides]

    def restored(node: Node) -> Node:
        """The node with the strides that it had; of a view, the view of what it describes."""
        before = original.get(node)
        if not isinstance(before, torch.Tensor) or node.meta["val"].stride() == before.stride():
            return node
        if not is_view(node):
            return arranged(node, before.stride())
        if node not in views:
            sources = {source: restored(source) for source in node.all_input_nodes}
            with graph.inserting_before(_first_place_after(graph, node)):
                copy = views[node] = graph.node_copy(node, sources.__getitem__)
            copy.meta["val"] = before
            copy.target = targets[node]
        return views[node]

    def restore(user: Node) -> None:
        for source in user.all_input_nodes:
            user.replace_input_with(source, restored(source))

    moved: set[Node] = set()
    for node in list(graph.nodes):
        if node.target is convolution:
            for position in (0, 1):
                source = node.args[position]
                if isinstance(source, Node):
                    node.replace_input_with(source, arranged(source, None))
            _make_channels_last(node)
            moved.add(node)
        elif node.op == "output" or (any(source in moved for source in node.all_input_nodes) and _is_of_memory(node)):
            restore(node)
        elif any(source in moved for source in node.all_input_nodes):
            _recompute(node)
            moved.add(node)


def _make_channels_last(node: Node) -> None:
    value = node.meta["val"]
    with detect_fake_mode([value]) or contextlib.nullcontext():
        node.meta["val"] = torch.empty_like(value, memory_format=torch.channels_last)


def _copy(graph: Graph, node: Node, original: Any, strides: tuple[int, ...] | None) -> Node:
    if strides is None:
        return call_with_meta(graph, aten.clone.default, (node,), node, memory_format=torch.channels_last)
    order = dense_order(original) or tuple(range(original.dim()))
    permuted = call_with_meta(graph, aten.permute.default, (node, list(order)), node)
    copied = call_with_meta(graph, aten.clone.default, (permuted,), node, memory_format=torch.contiguous_format)
    return call_with_meta(graph, aten.permute.default, (copied, list(inverse(order))), node)


def _first_place_after(graph: Graph, node: Node) -> Node:
    """The node before which one that reads ``node`` can be inserted first; placeholders stay together."""
    following = node.next
    while following.op == "placeholder":
        following = following.next
    return following


def _is_of_memory(node: Node) -> bool:
    """Whether a call depends on how its arguments lie in memory."""
    if node.target is operator.getitem:
        return False
    if not isinstance(node.target, OpOverload) or node.target.namespace not in ("aten", "prims"):
        return True
    # Random numbers are drawn in the order of memory.
    return node.target in _OF_MEMORY or torch.Tag.nondeterministic_seeded in node.target.tags


def _recompute(node: Node) -> None:
    """The fake value for arguments as they lie now. A view that is none of these becomes a copy."""
    assert callable(node.target)
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda source: source.meta["val"])
    values = [source.meta["val"] for source in node.all_input_nodes]
    with detect_fake_mode(values) or contextlib.nullcontext():
        if node.target in (aten.view.default, aten._unsafe_view.default):
            try:
                node.meta["val"] = node.target(*args, **kwargs)
                return
            except (RuntimeError, ValueError):
                node.target = aten.reshape.default
        node.meta["val"] = node.target(*args, **kwargs)
    node.meta.pop("tensor_meta", None)
