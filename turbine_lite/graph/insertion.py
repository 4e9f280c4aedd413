"""Copying graph modules and inserting calls with their fake values."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import Graph, GraphModule, Node

__all__ = ["call_with_meta", "copy_graph_module", "origin_of", "put_first", "size_of"]


def copy_graph_module(gm: GraphModule) -> GraphModule:
    """A copy whose graph can be changed; attributes and metadata values are shared."""
    graph = Graph()
    copied: dict[Node, Node] = {}
    output = graph.output(graph.graph_copy(gm.graph, copied))
    output.meta = dict(gm.graph.output_node().meta)
    names = {node.target for node in graph.nodes if node.op == "get_attr"}
    return GraphModule({name: getattr(gm, name) for name in names}, graph)


def call_with_meta(graph: Graph, target: Any, args: tuple[Any, ...], like: Node, **kwargs: Any) -> Node:
    """Insert a call and compute its fake value; source location and origin are those of ``like``."""
    node = graph.call_function(target, args, kwargs)
    fake_args, fake_kwargs = torch.fx.map_arg((args, kwargs), lambda n: n.meta["val"])
    # The result of ``like``, too: a call may have no tensor among its arguments.
    values = [n.meta.get("val") for n in (*node.all_input_nodes, like, *like.all_input_nodes)]
    with detect_fake_mode(values) or contextlib.nullcontext():
        node.meta["val"] = target(*fake_args, **fake_kwargs)
    node.meta["origin"] = origin_of(like)
    if "stack_trace" in like.meta:
        node.meta["stack_trace"] = like.meta["stack_trace"]
    return node


def put_first(graph: Graph, nodes: Sequence[Node]) -> None:
    """Move nodes that read no others to the beginning, in this order."""
    for node in reversed(nodes):
        first = next(iter(graph.nodes))
        if first is not node:
            first.prepend(node)


def size_of(graph: Graph, tensor: Node, dim: int, like: Node) -> Any:
    """A size of a tensor: a number if it is static, else an inserted call."""
    size = tensor.meta["val"].shape[dim]
    return size if isinstance(size, int) else call_with_meta(graph, torch.ops.aten.sym_size.int, (tensor, dim), like)


def origin_of(node: Node) -> str:
    """The name of the node of the captured graph that a rewrite made ``node`` from."""
    return str(node.meta.get("origin", node.name))
