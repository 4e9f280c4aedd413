"""Cut a graph into regions for IREE and nodes that run in eager.

Nodes are put into phases that run one after the other: eager -1, region 0, eager 0, region 1, eager 1, ... Each node
goes into the first phase in which all that it needs is there, so a graph gets as few regions as its dependencies
allow, whatever the order of its nodes. Within an eager phase the original order is kept; operators with an effect
(writes, random numbers) never overtake each other.
"""

from __future__ import annotations

import dataclasses
import operator
from collections import defaultdict
from collections.abc import Callable, Mapping

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils._ordered_set import OrderedSet

from turbine_lite.graph.constants import EMBEDDED_ELEMENTS
from turbine_lite.graph.support import Reason, is_symbolic_scalar, reason_for
from turbine_lite.graph.views import EAGER_VIEW, computes, is_view, split_off_views
from turbine_lite.graph.work import CONTRACTIONS, operations_of

__all__ = ["Partitioned", "partition"]

# Multiply-adds that take longer than calling IREE does, which is 0.1 ms and more beside kernels whose threads spin.
_ENOUGH_OPERATIONS = 2_000_000


@dataclasses.dataclass(frozen=True)
class Partitioned:
    """``outer`` calls its submodules ``regions``; ``reasons`` tell why the other nodes stayed in eager.

    ``regions`` maps the attribute's name to a graph module with tensor (and SymInt) placeholders and a flat tuple
    of tensors as output. Regions are empty when no node can run in IREE.
    """

    outer: GraphModule
    regions: dict[str, GraphModule]
    reasons: tuple[Reason, ...]


def partition(gm: GraphModule, why_not: Callable[[Node], Reason | None], min_block_size: int = 1) -> Partitioned:
    """Partition a functionalised graph module; ``gm`` itself is left as it is.

    Args:
        gm: the graph module.
        why_not: says of each call why it must run in eager, or None.
        min_block_size: where something must run in eager, regions of fewer calls do so, too; views do not count, and
            those with a matmul or a convolution of some size stay.
    """
    graph = Graph()
    copied: dict[Node, Node] = {}
    output_value = graph.graph_copy(gm.graph, copied)
    output = graph.output(output_value)
    output.meta = dict(gm.graph.output_node().meta)
    graph.eliminate_dead_code()
    reasons = _find_reasons(graph, why_not)
    split_off_views(graph, reasons.__contains__)
    is_cut = any(reason is not None for reason in reasons.values())
    assigned, small = _assign_phases(graph, reasons, min_block_size if is_cut else 1)
    outer, regions = _build(gm, graph, _take_views_where_used(graph, assigned))
    return Partitioned(outer, regions, (*(reason for reason in reasons.values() if reason is not None), *small))


def _find_reasons(graph: Graph, why_not: Callable[[Node], Reason | None]) -> dict[Node, Reason | None]:
    """The nodes that must run in eager; None stands for one that follows its producer."""
    reasons: dict[Node, Reason | None] = {}
    for node in graph.nodes:
        if node.op != "call_function" or is_symbolic_scalar(node.meta.get("val")):
            continue  # sizes are computed by Python, see _is_cheap_in_eager
        if node.target is operator.getitem:
            if node.args[0] in reasons:
                reasons[node] = None
        else:
            reason = why_not(node)
            if reason is not None:
                reasons[node] = reason
    return reasons


@dataclasses.dataclass(frozen=True)
class _Phase:
    """Phase ``number``, in IREE or in eager. A region comes before the eager nodes of the same number."""

    number: int
    in_iree: bool


_START = _Phase(-1, in_iree=False)


def _assign_phases(
    graph: Graph, reasons: Mapping[Node, Reason | None], min_block_size: int
) -> tuple[dict[Node, _Phase], list[Reason]]:
    """The phase of each node, and a reason for each call that runs in eager only because its region is small."""
    eager = OrderedSet(node for node in graph.nodes if node in reasons or _is_cheap_in_eager(node))
    eager.update(_unsigned_constants(graph))
    eager.update(node for node in graph.nodes if _only_feeds(node, eager))
    small: list[Reason] = []
    while True:
        phases = _phases(graph, eager)
        useless = _nodes_of_useless_regions(phases, min_block_size)
        if not useless:
            return phases, small
        eager.update(useless)
        text = f"a region of fewer than {min_block_size} operators does not pay (option min_block_size)"
        small += [reason_for(node, "small", text) for node in useless if computes(node)]


def _is_cheap_in_eager(node: Node) -> bool:
    # Sizes are Python integers, computed by Python for all regions at once and passed to them.
    return EAGER_VIEW in node.meta or (node.op == "call_function" and is_symbolic_scalar(node.meta.get("val")))


def _unsigned_constants(graph: Graph) -> OrderedSet[Node]:
    """Results of uint8 that depend on no argument: torch-mlir folds them, and takes them for int8 then."""
    constant: OrderedSet[Node] = OrderedSet()
    for node in graph.nodes:
        if node.op == "get_attr" or (node.op == "call_function" and all(s in constant for s in node.all_input_nodes)):
            constant.add(node)
    needed: OrderedSet[Node] = OrderedSet()
    for node in reversed(list(constant)):
        value = node.meta.get("val")
        is_unsigned = isinstance(value, torch.Tensor) and value.dtype is torch.uint8
        if (is_unsigned and any(user.op == "output" for user in node.users)) or any(u in needed for u in node.users):
            needed.add(node)
    return OrderedSet(node for node in needed if node.op == "call_function")


def _only_feeds(node: Node, eager: OrderedSet[Node]) -> bool:
    """Whether a node reads nothing (``empty``, ``arange``) and only nodes in eager want its result."""
    return node.op == "call_function" and not node.all_input_nodes and all(user in eager for user in node.users)


def _phases(graph: Graph, eager: OrderedSet[Node]) -> dict[Node, _Phase]:
    phases: dict[Node, _Phase] = {}
    last_effect, last = -1, -1
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            phases[node] = _START
            continue
        if node.op == "output":
            continue
        sources = [phases[source] for source in node.all_input_nodes]
        if node not in eager:
            number = max((s.number if s.in_iree else s.number + 1 for s in sources), default=0)
            phases[node] = _Phase(max(0, number), in_iree=True)
        else:
            number = max((s.number for s in sources), default=-1)
            if _has_effect(node):
                # A write must come after all that may read the old value, which is everything before it.
                number = max(number, last if _writes(node) else last_effect)
                last_effect = number
            phases[node] = _Phase(number, in_iree=False)
        last = max(last, phases[node].number)
    return phases


def _has_effect(node: Node) -> bool:
    return EAGER_VIEW not in node.meta and bool(node.is_impure())


def _writes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is None or schema.is_mutable


def _nodes_of_useless_regions(phases: Mapping[Node, _Phase], min_block_size: int) -> list[Node]:
    """Nodes of regions of too few calls, or of views only: calling IREE for them costs more than torch does.

    A matmul or a convolution is enough.
    """
    by_region = defaultdict(list)
    for node, phase in phases.items():
        if phase.in_iree:
            by_region[phase.number].append(node)
    return [n for nodes in by_region.values() if not _pays(nodes, min_block_size) for n in nodes]


def _pays(nodes: list[Node], min_block_size: int) -> bool:
    count = sum(map(computes, nodes))
    return count >= min_block_size or any(
        node.target in CONTRACTIONS and operations_of(node) >= _ENOUGH_OPERATIONS for node in nodes
    )


def _take_views_where_used(graph: Graph, phases: Mapping[Node, _Phase]) -> dict[Node, _Phase]:
    """Give each other phase that reads a view of a region a copy of the view, so that the base crosses in its place.

    A region's result is memory of its own, which a view's strides (of a slice, an expanded tensor) do not describe.
    """
    moved = dict(phases)
    for node in reversed(list(graph.nodes)):
        home = moved.get(node)
        if home is None or not home.in_iree or not is_view(node):
            continue
        copies: dict[_Phase, Node] = {}
        for user in list(node.users):
            phase = moved.get(user, home)
            if phase == home:
                continue
            if not phase.in_iree:  # torch can take it as soon as the region is done
                phase = _Phase(home.number, in_iree=False)
            if phase not in copies:
                with graph.inserting_after(node):
                    copies[phase] = graph.node_copy(node)
                moved[copies[phase]] = phase
            user.replace_input_with(node, copies[phase])
        if not node.users:
            graph.erase_node(node)
            del moved[node]
    return {node: moved[node] for node in graph.nodes if node in moved}


def _build(gm: GraphModule, graph: Graph, phases: Mapping[Node, _Phase]) -> tuple[GraphModule, dict[str, GraphModule]]:
    eager_nodes: dict[int, list[Node]] = defaultdict(list)
    region_nodes: dict[int, list[Node]] = defaultdict(list)
    for node, phase in phases.items():
        if node.op == "call_function":
            (region_nodes if phase.in_iree else eager_nodes)[phase.number].append(node)
    outer = Graph()
    values: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            values[node] = outer.node_copy(node, values.__getitem__)
    regions: dict[str, GraphModule] = {}
    root = {name: getattr(gm, name) for name in _attributes(graph)}
    for number in range(-1, max([-1, *region_nodes, *eager_nodes]) + 1):
        if region_nodes[number]:
            name = f"region_{len(regions)}"
            regions[name] = root[name] = _extract(gm, graph, region_nodes[number], outer, values, name)
        for node in eager_nodes[number]:
            values[node] = outer.node_copy(node, values.__getitem__)
    output = outer.node_copy(graph.output_node(), values.__getitem__)
    output.meta = dict(graph.output_node().meta)
    return GraphModule(root, outer), regions


def _attributes(graph: Graph) -> OrderedSet[str]:
    return OrderedSet(node.target for node in graph.nodes if node.op == "get_attr")


def _extract(
    gm: GraphModule, graph: Graph, nodes: list[Node], outer: Graph, values: dict[Node, Node], name: str
) -> GraphModule:
    """Move ``nodes`` into a graph module of their own and call it from ``outer``."""
    members = OrderedSet(nodes)
    region = Graph()
    inner: dict[Node, Node] = {}
    arguments: list[Node] = []
    for source in _sources(gm, graph, nodes, members):
        if source.op == "get_attr" and _is_embeddable(getattr(gm, str(source.target))):
            inner[source] = region.node_copy(source, inner.__getitem__)
            continue
        inner[source] = region.placeholder(source.name)
        inner[source].meta = dict(source.meta)
        if source.op == "get_attr" and "val" not in source.meta:
            inner[source].meta["val"] = getattr(gm, str(source.target))
        arguments.append(values[source])
    for node in nodes:
        inner[node] = region.node_copy(node, inner.__getitem__)
    results = [node for node in nodes if any(user not in members for user in node.users)]
    region.output(tuple(inner[node] for node in results))
    call = outer.call_module(name, tuple(arguments))
    for index, node in enumerate(results):
        values[node] = outer.call_function(operator.getitem, (call, index))
        values[node].meta = dict(node.meta)
    root = {target: getattr(gm, target) for target in _attributes(region)}
    return GraphModule(root, region)


def _sources(gm: GraphModule, graph: Graph, nodes: list[Node], members: OrderedSet[Node]) -> OrderedSet[Node]:
    """What a region reads from outside: its arguments, and the sizes that its results' shapes are made of."""
    sources = OrderedSet(s for node in nodes for s in node.all_input_nodes if s not in members)
    wanted = {
        symbol
        for node in nodes
        if isinstance(node.meta.get("val"), torch.Tensor)
        for size in node.meta["val"].shape
        if isinstance(size, torch.SymInt)
        for symbol in size.node.expr.free_symbols
    }
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, torch.SymInt) and value.node.expr in wanted:
            sources.add(node)
    return sources


def _is_embeddable(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() <= EMBEDDED_ELEMENTS
