"""Where integers are not zero, in integers."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from turbine_lite.graph.insertion import call_with_meta

__all__ = ["nonzero_indicator"]

aten = torch.ops.aten


def nonzero_indicator(graph: Graph, source: Node, like: Node) -> Node:
    """Insert 1 where an element of a signed integer tensor is not 0, and 0 elsewhere, in its dtype.

    No mask: where the size is dynamic IREE keeps one on the stack, where it has no room.
    """
    sign = call_with_meta(graph, aten.clamp.default, (source, -1, 1), like)
    return call_with_meta(graph, aten.mul.Tensor, (sign, sign), like)
