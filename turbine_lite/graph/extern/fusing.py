"""What can be fused into a kernel: which calls follow it, and what it calls them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node

from turbine_lite.graph.extern.kernels import NO_ACTIVATION, Activation, Bounds
from turbine_lite.graph.insertion import origin_of

__all__ = ["VIEWS", "call_kernel", "epilogue_of", "erase_unused", "only_user"]

aten = torch.ops.aten

VIEWS = (aten.view.default, aten._unsafe_view.default)

# oneDNN's activations that make of NaN and infinities what eager makes of them.
_ACTIVATIONS: dict[Any, tuple[str, str]] = {
    aten.silu.default: ("swish", ""),
    aten.sigmoid.default: ("sigmoid", ""),
    aten.tanh.default: ("tanh", ""),
    aten.hardswish.default: ("hardswish", ""),
}


def only_user(node: Node) -> Node | None:
    """The one call that reads the node; None if there are more, or none."""
    return next(iter(node.users)) if len(node.users) == 1 else None


class Epilogue(NamedTuple):
    """What a kernel does to its result.

    Attributes:
        other: the summand, or None.
        activation: oneDNN's; none where there is a sum.
        bounds: of a clamp, or None.
        last: the last node of the graph that it stands for.
    """

    other: Node | None
    activation: Activation
    bounds: Bounds | None
    last: Node


def epilogue_of(last: Node) -> Epilogue:
    """What of the calls that follow ``last`` can be fused into the kernel that makes it."""
    other, last = _summand(last)
    following = only_user(last)
    activation = _activation_of(following) if other is None else None
    bounds = _bounds_of(following)
    if following is not None and (activation is not None or bounds is not None):
        last = following
    return Epilogue(other, activation or NO_ACTIVATION, bounds, last)


def _activation_of(node: Node | None) -> Activation | None:
    """What oneDNN calls this call; None if it has none of the same values."""
    if node is None:
        return None
    if node.target in _ACTIVATIONS:
        name, variant = _ACTIVATIONS[node.target]
        return name, (), variant
    if node.target is aten.gelu.default:
        return "gelu", (), str(node.kwargs.get("approximate", "none"))
    if node.target is aten.leaky_relu.default:
        slope: Any = node.args[1] if len(node.args) > 1 else 0.01
        return "leaky_relu", (slope,), ""
    return None


def _bounds_of(node: Node | None) -> Bounds | None:
    """The bounds of a clamp."""
    if node is None:
        return None
    if node.target is aten.relu.default:
        return 0, None
    if node.target is aten.hardtanh.default and not node.kwargs:
        given: Any = node.args[1:]
        low: Any = given[0] if given else -1.0
        return low, given[1] if len(given) > 1 else 1.0
    return None


def _summand(last: Node) -> tuple[Node | None, Node]:
    """The other operand, if all that becomes of ``last`` is a sum with a tensor like it; and the last node fused."""
    add = only_user(last)
    if add is None or add.target is not aten.add.Tensor or add.kwargs.get("alpha", 1) != 1:
        return None, last
    other = add.args[0] if add.args[1] is last else add.args[1]
    if not isinstance(other, Node) or other is last:
        return None, last
    mine, others = last.meta["val"], other.meta["val"]
    alike = isinstance(others, torch.Tensor) and mine.shape == others.shape and mine.dtype is others.dtype
    return (other, add) if alike else (None, last)


def call_kernel(graph: Graph, function: Any, arguments: tuple[Any, ...], value: torch.Tensor, node: Node) -> Node:
    """Insert a call of a kernel in the place of ``node``; ``value`` is its fake value."""
    result = graph.call_function(function, arguments)
    result.meta = {**node.meta, "val": value, "origin": origin_of(node)}
    result.meta.pop("tensor_meta", None)  # which would say of the value what held for the node's
    return result


def erase_unused(node: Node) -> None:
    """Erase a call that nothing reads, and what nothing but it has read.

    Not all dead code of the graph: looking for that after each fusion takes longer than all fusions.
    """
    pending = [node]
    while pending:
        current = pending.pop()
        if current.op == "placeholder" or current.users:
            continue
        sources = current.all_input_nodes
        current.graph.erase_node(current)
        pending += [source for source in sources if source not in pending]
