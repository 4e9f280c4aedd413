"""A graph module that holds one call of a larger graph, to try that call alone."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from turbine_lite.graph.insertion import copy_graph_module

__all__ = ["extract_node"]


def extract_node(gm: GraphModule, node: Node) -> GraphModule:
    """The call ``node`` of ``gm`` with its arguments as placeholders and all its tensors as results."""
    graph = Graph()
    values: dict[Node, Node] = {}
    attributes: dict[str, Any] = {}
    for source in node.all_input_nodes:
        if source.op == "get_attr":
            attributes[str(source.target)] = getattr(gm, str(source.target))
            values[source] = graph.node_copy(source)
        else:
            values[source] = graph.placeholder(source.name)
            values[source].meta = dict(source.meta)
    call = graph.node_copy(node, values.__getitem__)
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        results = [call]
    else:
        results = []
        for index, item in enumerate(value if isinstance(value, (list, tuple)) else ()):
            if isinstance(item, torch.Tensor):
                result = graph.call_function(operator.getitem, (call, index))
                result.meta["val"] = item
                results.append(result)
    graph.output(tuple(results))
    return copy_graph_module(GraphModule(attributes, graph))
