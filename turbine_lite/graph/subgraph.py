"""Parts of a region as graph modules of their own, to try them alone."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils._ordered_set import OrderedSet

__all__ = ["Part", "extract_part"]


class Part(NamedTuple):
    """Some calls of a larger graph.

    Attributes:
        gm: the calls, with what they read as placeholders and what is read of them as results.
        sources: the nodes of the larger graph that the placeholders stand for, in order.
        results: the nodes of the larger graph that the results stand for, in order.
    """

    gm: GraphModule
    sources: list[Node]
    results: list[Node]


def extract_part(gm: GraphModule, nodes: Iterable[Node]) -> Part:
    """The calls ``nodes`` of ``gm``, in the graph's order, and the items of their results."""
    wanted = OrderedSet(nodes)
    for node in gm.graph.nodes:
        if node.target is operator.getitem and node.args[0] in wanted:
            wanted.add(node)
    members = [node for node in gm.graph.nodes if node in wanted]
    graph = Graph()
    values: dict[Node, Node] = {}
    sources: list[Node] = []
    for node in gm.graph.nodes:
        is_read = node not in wanted and any(user in wanted for user in node.users)
        is_size = node.op == "placeholder" and isinstance(node.meta.get("val"), torch.SymInt)
        if is_read and node.op == "get_attr":
            values[node] = graph.node_copy(node)
        elif is_read or is_size:
            values[node] = graph.placeholder(node.name)
            values[node].meta = dict(node.meta)
            sources.append(node)
    for node in members:
        values[node] = graph.node_copy(node, values.__getitem__)
    results = [node for node in members if _is_read_outside(node, wanted)]
    graph.output(tuple(values[node] for node in results))
    attributes = {str(node.target): getattr(gm, str(node.target)) for node in graph.nodes if node.op == "get_attr"}
    return Part(GraphModule(attributes, graph), sources, results)


def _is_read_outside(node: Node, members: OrderedSet[Node]) -> bool:
    is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
    return is_tensor and (not node.users or any(user not in members for user in node.users))
