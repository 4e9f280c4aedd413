"""How much work a graph is, and so on how many threads it should run."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node
from torch.utils._pytree import tree_leaves

from turbine_lite.graph.sizes import numel_hint, size_hint

__all__ = [
    "CONTRACTIONS",
    "LARGE_ENOUGH_FOR_THREADS",
    "choose_driver",
    "estimated_operations",
    "multiplies_and_adds",
    "operations_of",
]

aten = torch.ops.aten

CONTRACTIONS = frozenset(
    {
        *(aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, aten.linear.default),
        aten.convolution.default,
    }
)

# How many there are in it, and where its query is among the arguments.
_MATMULS_OF_ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: (2, 0),
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: (5, 1),
}

# Waking worker threads takes 0.01 to 0.3 ms a call, and again after each part that one thread does alone. One thread
# does so many scalar operations in a tenth of a millisecond, and in a tenth of a second.
_TOO_SMALL_FOR_THREADS = 1_000_000
LARGE_ENOUGH_FOR_THREADS = 1_000_000_000


def choose_driver(graph: Graph, driver: str) -> str:
    """``driver``, or for ``"auto"``: local-sync for small graphs and single-threaded torch, local-task for large ones.

    In between it stays ``"auto"``: that is for the machine to say.
    """
    if driver != "auto":
        return driver
    operations = estimated_operations(graph)
    if torch.get_num_threads() == 1 or operations < _TOO_SMALL_FOR_THREADS:
        return "local-sync"
    return "local-task" if operations >= LARGE_ENOUGH_FOR_THREADS else "auto"


def estimated_operations(graph: Graph) -> int:
    """Multiply-adds of matmuls and convolutions, plus one for each element that a node produces."""
    return sum(operations_of(node) for node in graph.nodes if node.op == "call_function")


def operations_of(node: Node) -> int:
    """The same of one call."""
    elements = sum(numel_hint(leaf) for leaf in tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor))
    if node.target in (aten.mm.default, aten.bmm.default, aten.linear.default):
        return elements * _size(node.args[0], -1)
    if node.target is aten.addmm.default:
        return elements * _size(node.args[1], -1)
    if node.target is aten.convolution.default:
        weight = node.args[1]
        return elements * numel_hint(weight.meta["val"][0]) if isinstance(weight, Node) else elements
    if node.target is aten.convolution_backward.default:
        gradient, _, weight = node.args[:3]
        if isinstance(gradient, Node) and isinstance(weight, Node):
            return 2 * numel_hint(gradient.meta["val"]) * numel_hint(weight.meta["val"][0])
    if node.target in _MATMULS_OF_ATTENTION:
        matmuls, position = _MATMULS_OF_ATTENTION[node.target]
        query, key = node.args[position : position + 2]
        if isinstance(query, Node) and isinstance(key, Node):
            return matmuls * numel_hint(query.meta["val"]) * size_hint(key.meta["val"].shape[-2])
    return elements


def multiplies_and_adds(node: Node) -> bool:
    """Whether the operations of a call are multiply-adds."""
    return (
        node.target in CONTRACTIONS
        or node.target in _MATMULS_OF_ATTENTION
        or node.target is aten.convolution_backward.default
    )


def _size(argument: object, dim: int) -> int:
    return size_hint(argument.meta["val"].shape[dim]) if isinstance(argument, Node) else 1
