"""What is to be computed once from parameters, not on each call: packed weights of kernels, normalised weights.

(Where a whole graph runs in IREE, IREE hoists it itself.)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node

from turbine_lite.graph.parameters import PARAMETER
from turbine_lite.graph.views import is_view

__all__ = ["ONCE", "Split", "computed_once", "depends_on_parameters_only", "mark_once", "split_off_once"]

# The key in a node's ``meta`` that says so. Such a node depends on parameters alone, and is no result of the graph:
# what the caller gets must be his to write.
ONCE = "turbine_lite.once"


class Split(NamedTuple):
    """A graph module in two.

    Attributes:
        once: from the parameters at ``parameters`` (positions among the arguments) to values.
        main: from all arguments, followed by these values, to the results.
        parameters: positions of the arguments that ``once`` takes.
    """

    once: GraphModule
    main: GraphModule
    parameters: tuple[int, ...]


def depends_on_parameters_only(node: Node) -> bool:
    """Whether a value is a parameter or computed from nothing but parameters."""
    pending, seen = [node], {node}
    while pending:
        current = pending.pop()
        if not _keeps_constant(current):
            return False
        new = [source for source in current.all_input_nodes if source not in seen]
        seen.update(new)
        pending += new
    return True


def _keeps_constant(node: Node) -> bool:
    """Whether a value is a parameter, or depends on parameters alone if all that it is computed from does."""
    if node.op == "placeholder":
        return PARAMETER in node.meta
    return node.op == "call_function" and bool(node.all_input_nodes) and not node.is_impure()


def mark_once(graph: Graph) -> list[Node]:
    """Mark what depends on parameters alone and something else reads, such as weights under a parametrization.

    Returns:
        The calls that are not needed on each call any more.
    """
    fixed: set[Node] = set()
    for node in graph.nodes:
        if _keeps_constant(node) and all(source in fixed for source in node.all_input_nodes):
            fixed.add(node)
    for node in fixed:
        is_read = any(user not in fixed for user in node.users)
        if is_read and not _is_of_caller(node) and isinstance(node.meta.get("val"), torch.Tensor):
            node.meta[ONCE] = True
    return [node for node in computed_once(graph) if node.op == "call_function"]


def _is_of_caller(node: Node) -> bool:
    """Whether it is a parameter, a view of one, or memory that is returned."""
    base = node
    while is_view(base) and base.all_input_nodes:
        base = base.all_input_nodes[0]
    return base.op == "placeholder" or _is_returned(base)


def _is_returned(base: Node) -> bool:
    return any(user.op == "output" or (is_view(user) and _is_returned(user)) for user in base.users)


def split_off_once(gm: GraphModule) -> Split | None:
    """Split a graph module; None if no node of it is marked with ``ONCE``."""
    roots = [node for node in gm.graph.nodes if ONCE in node.meta]
    if not roots:
        return None
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    needed = _ancestors(roots)
    positions = tuple(index for index, node in enumerate(placeholders) if node in needed)
    dropped = computed_once(gm.graph)
    once, main = Graph(), Graph()
    copies = {placeholders[index]: once.node_copy(placeholders[index]) for index in positions}
    for node in gm.graph.nodes:
        if node in needed and node.op != "placeholder":
            copies[node] = once.node_copy(node, copies.__getitem__)
    once.output(tuple(copies[node] for node in roots))

    copies = {node: main.placeholder(node.name) for node in (*placeholders, *roots)}
    for node, copy in copies.items():
        copy.meta = dict(node.meta)
    for node in gm.graph.nodes:
        if node not in copies and node not in dropped:
            copies[node] = main.node_copy(node, copies.__getitem__)
    return Split(GraphModule(gm, once), GraphModule(gm, main), positions)


def _ancestors(roots: list[Node]) -> set[Node]:
    """The nodes themselves and all that they are computed from."""
    found, pending = set(roots), list(roots)
    while pending:
        new = [source for source in pending.pop().all_input_nodes if source not in found]
        found.update(new)
        pending += new
    return found


def computed_once(graph: Graph) -> set[Node]:
    """The nodes that are not computed on each call: those marked with ``ONCE``, and what nothing but they need."""
    roots = [node for node in graph.nodes if ONCE in node.meta]
    needed, only = _ancestors(roots), set(roots)
    for node in reversed(list(graph.nodes)):
        if node in needed and node.op != "placeholder" and all(user in only for user in node.users):
            only.add(node)
    return only
