"""Memory layouts of a graph in which some kernels want and give images channels last.

The layouts of what lies between follow from those; where the captured one matters, above all for results, it is
restored.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Collection
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import Graph, Node

from turbine_lite.graph.extern.fusing import VIEWS
from turbine_lite.graph.extern.kernels import convolution
from turbine_lite.graph.insertion import call_with_meta
from turbine_lite.graph.signature import dense_order, inverse
from turbine_lite.graph.support import is_own_operator
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


def settle_layouts(graph: Graph, changed: Collection[Node] = ()) -> None:
    """Give kernels what they want, and compute the fake values of all that follows anew, in place.

    ``changed`` are calls of which an argument lies otherwise than when the graph was captured.
    """
    layouts = _Layouts(graph)
    moved: set[Node] = set()
    for node in list(graph.nodes):
        follows = any(source in moved for source in node.all_input_nodes)
        if node.target is convolution:
            for source in node.args[:2]:
                if isinstance(source, Node):
                    node.replace_input_with(source, layouts.channels_last(source))
            _make_channels_last(node)
            moved.add(node)
        elif node in changed:
            _recompute(node)
            moved.add(node)
        elif node.op == "output" or (follows and _is_of_memory(node)):
            for source in node.all_input_nodes:
                node.replace_input_with(source, layouts.restored(source))
        elif follows:
            _recompute(node)
            moved.add(node)


class _Layouts:
    """Copies of a graph's tensors in other layouts, each made once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._captured = {node: (node.meta.get("val"), node.target) for node in graph.nodes}
        self._channels_last: dict[Node, Node] = {}
        self._restored: dict[Node, Node] = {}

    def channels_last(self, node: Node) -> Node:
        """The image channels last."""
        if node.meta["val"].is_contiguous(memory_format=torch.channels_last):
            return node
        if node not in self._channels_last:
            with self._graph.inserting_before(_first_place_after(node)):
                self._channels_last[node] = call_with_meta(
                    self._graph, aten.clone.default, (node,), node, memory_format=torch.channels_last
                )
        return self._channels_last[node]

    def restored(self, node: Node) -> Node:
        """The node with the strides that it had; of a view, the view of what it described."""
        value, target = self._captured.get(node, (None, None))
        if not isinstance(value, torch.Tensor) or node.meta["val"].stride() == value.stride():
            return node
        if node not in self._restored:
            sources = {source: self.restored(source) for source in node.all_input_nodes} if is_view(node) else {}
            with self._graph.inserting_before(_first_place_after(node)):
                if sources:
                    copy = self._graph.node_copy(node, sources.__getitem__)
                    copy.target, copy.meta["val"] = target, value
                else:
                    copy = self._copy(node, value)
            self._restored[node] = copy
        return self._restored[node]

    def _copy(self, node: Node, value: torch.Tensor) -> Node:
        """A copy that lies in memory as ``value`` does."""
        order = dense_order(value) or tuple(range(value.dim()))
        permuted = call_with_meta(self._graph, aten.permute.default, (node, list(order)), node)
        rows: dict[str, Any] = {"memory_format": torch.contiguous_format}
        copied = call_with_meta(self._graph, aten.clone.default, (permuted,), node, **rows)
        return call_with_meta(self._graph, aten.permute.default, (copied, list(inverse(order))), node)


def _make_channels_last(node: Node) -> None:
    value = node.meta["val"]
    with detect_fake_mode([value]) or contextlib.nullcontext():
        node.meta["val"] = torch.empty_like(value, memory_format=torch.channels_last)


def _first_place_after(node: Node) -> Node:
    """The node before which one that reads ``node`` can be inserted first; placeholders stay together."""
    following = node.next
    while following.op == "placeholder":
        following = following.next
    return following


def _is_of_memory(node: Node) -> bool:
    """Whether a call depends on how its arguments lie in memory."""
    if node.target is operator.getitem:
        return False
    if not is_own_operator(node.target):
        return True
    # Random numbers are drawn in the order of memory.
    return node.target in _OF_MEMORY or torch.Tag.nondeterministic_seeded in node.target.tags


def _recompute(node: Node) -> None:
    """The fake value for arguments as they lie now. A view that is none of these becomes a copy."""
    assert callable(node.target)
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda source: source.meta["val"])
    values = [source.meta["val"] for source in node.all_input_nodes]
    with detect_fake_mode(values) or contextlib.nullcontext():
        if node.target in VIEWS:
            try:
                node.meta["val"] = node.target(*args, **kwargs)
                return
            except (RuntimeError, ValueError):
                node.target = aten.reshape.default
        node.meta["val"] = node.target(*args, **kwargs)
    node.meta.pop("tensor_meta", None)
