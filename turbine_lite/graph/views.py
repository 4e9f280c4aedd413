"""Views at the edge of the compiled part are made by torch, outside of IREE.

A result of a compiled program is memory of its own, so a view that the caller sees would come back as a copy: with
other strides than in eager, and no longer sharing memory with what it is a view of. Therefore each view that leads
to a result (or to a node that runs in eager) is taken from its base by torch. The base is what IREE returns. The same
holds for the sizes that a graph returns. As a side effect nothing is copied for ``weight.t()`` saved for backward.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node

from turbine_lite.graph.support import is_symbolic_scalar

__all__ = ["EAGER_VIEW", "base_of", "computes", "is_view", "split_off_views"]

# Key in ``Node.meta`` of the copies that run in eager.
EAGER_VIEW = "turbine_lite_eager_view"


def is_view(node: Node) -> bool:
    """Whether the node only describes memory of its argument (or reads a size from it), and so costs torch nothing."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        producer = node.args[0]
        return isinstance(producer, Node) and is_view(producer)
    if is_symbolic_scalar(node.meta.get("val")):
        return node.target is not torch.ops.aten._local_scalar_dense.default
    return isinstance(node.target, OpOverload) and node.target.is_view


def computes(node: Node) -> bool:
    """Whether the node is a call that computes something: no view, no size, no item of a result."""
    return (
        node.op == "call_function"
        and node.target is not operator.getitem
        and not is_view(node)
        and not is_symbolic_scalar(node.meta.get("val"))
    )


def base_of(node: Node) -> Node:
    """The node whose memory ``node`` describes; ``node`` itself if it is no view."""
    while is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def split_off_views(graph: Graph, runs_in_eager: Callable[[Node], bool]) -> None:
    """Give each result, and each node that runs in eager, views of its own that are marked with EAGER_VIEW."""
    copies: dict[Node, Node] = {}
    for user in list(graph.nodes):
        if user.op == "output" or (user.op == "call_function" and not is_view(user) and runs_in_eager(user)):
            for argument in user.all_input_nodes:
                copy = _eager_copy(graph, argument, copies)
                if copy is not argument:
                    user.replace_input_with(argument, copy)
    graph.eliminate_dead_code()


def _eager_copy(graph: Graph, node: Node, copies: dict[Node, Node]) -> Node:
    """``node`` itself when it is no view, else its copy that runs in eager (made once, bases first)."""
    chain = [node]
    while is_view(chain[-1]) and chain[-1] not in copies and len(chain[-1].all_input_nodes) == 1:
        chain.append(chain[-1].all_input_nodes[0])
    for current in reversed(chain):
        if not is_view(current) or current in copies:
            continue
        sources = {source: _eager_copy(graph, source, copies) for source in current.all_input_nodes}
        with graph.inserting_after(current):
            copy = graph.node_copy(current, sources.__getitem__)
        copy.meta[EAGER_VIEW] = True
        copies[current] = copy
    return copies.get(node, node)
