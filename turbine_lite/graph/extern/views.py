"""Fewer views between kernels. Each is a call from Python: tens of microseconds while OpenMP's threads spin."""

from __future__ import annotations

from typing import Any

from torch.fx import Graph, Node

from turbine_lite.graph.extern.fusing import VIEWS
from turbine_lite.graph.views import is_view

__all__ = ["merge_views"]


def merge_views(graph: Graph) -> None:
    """Make a view of a view one view, no view one that changes nothing, and of equal views one; in place.

    What the caller gets stays: each of his tensors is one of its own.
    """
    returned = set(graph.output_node().all_input_nodes)
    first: dict[Any, Node] = {}
    for node in list(graph.nodes):
        if not is_view(node) or node in returned:
            continue
        if node.target in VIEWS:
            _skip_views_before(node)
            source: Any = node.args[0]
            if source.meta["val"].shape == node.meta["val"].shape and _is_row_major(source):
                node.replace_all_uses_with(source)
                graph.erase_node(node)
                continue
        key = (node.target, repr(node.args), repr(node.kwargs))  # of nodes, the names
        if first.setdefault(key, node) is not node:
            node.replace_all_uses_with(first[key])
            graph.erase_node(node)
    graph.eliminate_dead_code()


def _skip_views_before(node: Node) -> None:
    """Take the view from the first tensor of the chain; which shapes are between does not matter to dense memory."""
    source: Any = node.args[0]
    while source.target in VIEWS and _is_row_major(source.args[0]):
        source = source.args[0]
    node.args = (source, *node.args[1:])


def _is_row_major(node: Any) -> bool:
    return bool(node.meta["val"].is_contiguous())
