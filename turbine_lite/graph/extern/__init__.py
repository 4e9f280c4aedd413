"""Operators that a kernel of PyTorch's libraries (ATen, oneDNN) runs faster than IREE stay with it, inside of a graph.

``choose`` says which, by measured ratios; ``convolution`` and ``linear`` fuse them with their neighbours and give them
packed weights; ``padding``, ``copies`` and ``views`` clear what lies between; ``layout`` settles the memory layouts;
``in_place`` writes arguments without copying them;
``turbine_lite.graph.once`` moves what depends on parameters alone, packing above all, out of each call.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, GraphModule, Node

from turbine_lite.graph.extern import convolution, linear
from turbine_lite.graph.extern.choose import KERNEL, reason_for_kernel
from turbine_lite.graph.extern.copies import drop_copies, drop_copies_for_attention
from turbine_lite.graph.extern.in_place import mark_written, write_in_place
from turbine_lite.graph.extern.layout import settle_layouts
from turbine_lite.graph.extern.padding import fold_padding
from turbine_lite.graph.extern.views import merge_views
from turbine_lite.graph.insertion import copy_graph_module
from turbine_lite.graph.once import mark_once
from turbine_lite.graph.support import reason_for

__all__ = ["KERNEL", "mark_written", "use_kernels"]


def use_kernels(gm: GraphModule, extern: str, *, pack: bool) -> GraphModule:
    """A graph in which the calls for kernels have the reason for it under ``KERNEL`` in their ``meta``.

    It is to be partitioned; Python code of the module itself is not made anew.

    Args:
        gm: the captured graph; it is left as it is.
        extern: the option.
        pack: fuse them with their neighbours and give them packed weights, where these are parameters.
    """
    if extern == "none":
        return gm
    changed = copy_graph_module(gm)
    chosen = _choose(changed.graph, extern)
    if not write_in_place(changed.graph) and not chosen:
        return gm
    drop_copies(changed.graph)
    if pack and not _is_dynamic(changed):
        fold_padding(changed.graph)
        changed_calls = drop_copies_for_attention(changed.graph)
        for node in chosen:
            if convolution.can_be_packed(node):
                convolution.pack(changed.graph, node)
            elif linear.can_be_packed(node):
                linear.pack(changed.graph, node)
            elif linear.is_of_transposed(node):
                linear.write_as_linear(changed.graph, node)
        merge_views(changed.graph)
        settle_layouts(changed.graph, changed_calls)
        drop_copies(changed.graph)
        for node in mark_once(changed.graph):
            node.meta.setdefault(KERNEL, reason_for(node, "once", "it is computed once, from parameters"))
    return changed


def _choose(graph: Graph, extern: str) -> list[Node]:
    """The calls for kernels, which get their reasons; a second look is for what follows from there being any."""
    chosen: list[Node] = []
    for _ in range(2):
        for node in graph.nodes:
            if node.op != "call_function" or KERNEL in node.meta:
                continue
            reason = reason_for_kernel(node, extern, beside=bool(chosen))
            if reason is not None:
                node.meta[KERNEL] = reason
                chosen.append(node)
        if not chosen:
            break
    return chosen


def _is_dynamic(gm: GraphModule) -> bool:
    return any(isinstance(node.meta.get("val"), torch.SymInt) for node in gm.graph.nodes)
