"""Which arguments of a region are parameters and buffers that stay what they are from call to call.

A program is loaded with the values of these and computes once what depends on nothing else, above all the layout that
matmuls want their weights in: on every call that costs more than it saves. What the caller changes in between is
noticed by ``turbine_lite.runtime.parameters``.
"""

from __future__ import annotations

from collections.abc import Container

import torch
from torch.fx import Graph, GraphModule, Node

from turbine_lite.graph.captured import metadata_of, placeholders_of
from turbine_lite.graph.sizes import is_static
from turbine_lite.graph.work import CONTRACTIONS

__all__ = ["PARAMETER", "choose_parameters", "mark_parameters"]

# The key in a placeholder's ``meta`` that says so.
PARAMETER = "turbine_lite.parameter"


def mark_parameters(gm: GraphModule) -> None:
    """Mark the placeholders of AOTAutograd's inference graph, while it is being compiled, that are parameters.

    Those are the inputs that Dynamo knows to belong to modules, without those that the graph itself writes.
    """
    metadata, placeholders = metadata_of(gm), placeholders_of(gm)
    if metadata is None:
        return
    for index in metadata.static_input_indices:
        if not metadata.input_info[index].mutates_data:
            placeholders[index].meta[PARAMETER] = True


def choose_parameters(graph: Graph, changing: Container[int] = ()) -> frozenset[int]:
    """The positions of the arguments that a region's program is to be loaded with.

    Args:
        graph: the region's, ready for import.
        changing: positions of arguments that were seen to change often.

    Returns:
        None at all where no matmul or convolution reads one: nothing would be gained.
    """
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    chosen = {
        node: index for index, node in enumerate(placeholders) if index not in changing and _can_be_parameter(node)
    }
    if not any(_is_weight(node) for node in chosen):
        return frozenset()
    return frozenset(chosen.values())


def _can_be_parameter(node: Node) -> bool:
    value = node.meta.get("val")
    return (
        PARAMETER in node.meta
        and isinstance(value, torch.Tensor)
        and is_static(value.shape)
        and value.numel() > 0
        and value.dtype is not torch.bool
        and not value.is_neg()
    )


def _is_weight(node: Node) -> bool:
    """Whether a contraction reads the tensor, directly or what views and casts of one argument make of it."""
    pending = [node]
    while pending:
        for user in pending.pop().users:
            if user.target in CONTRACTIONS:
                return True
            if len(user.all_input_nodes) == 1:
                pending.append(user)
    return False
