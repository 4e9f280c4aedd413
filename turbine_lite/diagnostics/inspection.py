"""A compiled function side by side: the user's lines, FX nodes, MLIR, dispatches, and what of each belongs together."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from turbine_lite.graph.report import GraphReport
from turbine_lite.graph.source import source_frame
from turbine_lite.graph.support import op_name
from turbine_lite.mlir.locations import nodes_in

__all__ = [
    "IREE_INPUT",
    "TORCH_DIALECT",
    "InspectedGraph",
    "InspectedNode",
    "InspectedRegion",
    "Line",
    "inspect_nodes",
    "read_mlir",
]

# What pages call the stages.
TORCH_DIALECT = "torch dialect"
IREE_INPUT = "IREE input"


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of text, and the names of the FX nodes that it comes from."""

    text: str
    nodes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class InspectedNode:
    """A node of the captured graph.

    Attributes:
        name: of the node.
        text: the call, with the type of its result.
        file, line: where the user wrote it; "" and 0 where that is not known.
        region: the number of the region that it runs in; None outside of IREE.
        why: why it does not run in IREE, or "".
    """

    name: str
    text: str
    file: str
    line: int
    region: int | None
    why: str


@dataclasses.dataclass(frozen=True)
class InspectedRegion:
    """What becomes of a region: MLIR by the names of the stages, and (name, seconds, FX nodes) of its dispatches."""

    stages: Mapping[str, str]
    dispatches: tuple[tuple[str, float, tuple[str, ...]], ...] = ()


@dataclasses.dataclass(frozen=True)
class InspectedGraph:
    """A captured graph: what it is called, its nodes, and its regions by their numbers."""

    name: str
    nodes: tuple[InspectedNode, ...]
    regions: tuple[InspectedRegion, ...]


def inspect_nodes(gm: GraphModule, regions: Iterable[GraphModule], report: GraphReport) -> tuple[InspectedNode, ...]:
    """The calls of a captured graph.

    Args:
        gm: the graph.
        regions: its parts that run in IREE; their nodes have the names that they have in the graph.
        report: says why others do not.
    """
    calls = ((number, node) for number, region in enumerate(regions) for node in region.graph.nodes)
    region_of = {node.name: number for number, node in calls if node.op == "call_function"}
    why = {reason.node: reason.text for reason in report.reasons}
    return tuple(
        _inspected(node, region_of.get(node.name), why.get(node.name, ""))
        for node in gm.graph.nodes
        if node.op == "call_function"
    )


def _inspected(node: Node, region: int | None, why: str) -> InspectedNode:
    frame = source_frame(node)
    arguments = [str(argument) for argument in node.args] + [f"{key}={value}" for key, value in node.kwargs.items()]
    text = f"{node.name}: {_type(node)} = {op_name(node)}({', '.join(arguments)})"
    file, line = ("", 0) if frame is None else (frame.file, frame.line)
    return InspectedNode(node.name, text, file, line, region, "" if region is not None else why)


def _type(node: Node) -> str:
    values: list[Any] = tree_leaves(node.meta.get("val"))
    return ", ".join(
        f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
        if isinstance(value, torch.Tensor)
        else str(value)
        for value in values
    )


_ALIAS = re.compile(r"#loc\d*\b")
_DEFINITION = re.compile(r"(#loc\d*) = (loc\(.*)")


def read_mlir(text: str) -> tuple[Line, ...]:
    """MLIR text that was printed with locations, without them: they say which FX nodes a line comes from.

    The first line of an operation with a body comes from what the last one does, where the location is printed.
    """
    lines, definitions = [], {}
    for line in text.splitlines():
        definition = _DEFINITION.fullmatch(line)
        if definition is None:
            lines.append(line)
        else:
            definitions[definition[1]] = definition[2]
    nodes_at = _resolver(definitions)
    found: list[Line] = []
    open_at: list[int] = []
    for line in lines:
        plain, locations = _split_locations(line)
        nodes = tuple(dict.fromkeys(name for location in locations for name in nodes_at(location)))
        if plain.lstrip().startswith("}") and open_at:
            first = open_at.pop()
            found[first] = Line(found[first].text, found[first].nodes or nodes)
        if plain.endswith("{"):
            open_at.append(len(found))
        found.append(Line(plain, nodes))
    return tuple(found)


def _resolver(definitions: Mapping[str, str]) -> Callable[[str], tuple[str, ...]]:
    @functools.cache
    def nodes_at(location: str) -> tuple[str, ...]:
        names = nodes_in(location)
        for alias in _ALIAS.findall(location):
            names += nodes_at(definitions.get(alias, ""))
        return tuple(dict.fromkeys(names))

    return nodes_at


def _split_locations(line: str) -> tuple[str, list[str]]:
    """A line without its ``loc(...)``, and these."""
    kept, locations, end = [], [], 0
    while (start := line.find(" loc(", end)) >= 0:
        kept.append(line[end:start])
        end = _closing(line, start + len(" loc"))
        locations.append(line[start:end])
    kept.append(line[end:])
    return "".join(kept), locations


def _closing(line: str, start: int) -> int:
    """Behind the parenthesis that closes the one at ``start``; parentheses in strings do not count."""
    depth, in_string = 0, False
    for index in range(start, len(line)):
        character = line[index]
        if character == '"':
            in_string = not in_string
        elif not in_string and character in "()":
            depth += 1 if character == "(" else -1
            if not depth:
                return index + 1
    return len(line)
