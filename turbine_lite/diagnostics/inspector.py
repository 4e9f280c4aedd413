"""An :mod:`inspection` as one HTML page that needs nothing else."""

from __future__ import annotations

import importlib.resources
import json
import linecache
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from turbine_lite.diagnostics.inspection import InspectedGraph, InspectedNode, Line, read_mlir

__all__ = ["write_page"]

# Of a file of the user's, so many lines around each that is in a graph.
_LINES_AROUND = 8

_COLOURS = 8


def write_page(graphs: Sequence[InspectedGraph], title: str, file: str | Path) -> None:
    """Write the page.

    Raises:
        OSError: the file cannot be written.
    """
    template = importlib.resources.files("turbine_lite.diagnostics").joinpath("inspector.html").read_text()
    data = json.dumps({"title": title, "panes": _Panes(graphs).panes()}, separators=(",", ":"))
    # What ends a script ends it also in a string.
    Path(file).write_text(template.replace("/*DATA*/null", data.replace("</", "<\\/")), encoding="utf-8")


class _Panes:
    """The panes of a page. FX nodes have numbers there, by graph and name."""

    def __init__(self, graphs: Sequence[InspectedGraph]) -> None:
        self._graphs = graphs
        names = ((index, node.name) for index, graph in enumerate(graphs) for node in graph.nodes)
        self._ids = {name: number for number, name in enumerate(names)}

    def panes(self) -> list[dict[str, Any]]:
        panes = [self._source(), self._fx()]
        stages = dict.fromkeys(stage for graph in self._graphs for region in graph.regions for stage in region.stages)
        panes += [{"name": stage, "lines": list(self._stage(stage))} for stage in stages]
        panes.append({"name": "dispatches", "lines": list(self._dispatches())})
        return [pane for pane in panes if pane["lines"]]

    def _source(self) -> dict[str, Any]:
        nodes: dict[tuple[str, int], list[int]] = {}
        for index, graph in enumerate(self._graphs):
            for node in graph.nodes:
                if node.file:
                    nodes.setdefault((node.file, node.line), []).append(self._ids[index, node.name])
        lines: list[dict[str, Any]] = []
        for file in dict.fromkeys(file for file, _ in nodes):
            lines.append({"t": file, "c": "head"})
            before = 0
            for number in _around(line for other, line in nodes if other == file):
                if before and number > before + 1:
                    lines.append({"t": "⋯", "c": "gap"})
                before = number
                code = linecache.getline(file, number).rstrip("\n")
                lines.append({"t": f"{number:5}  {code}", "n": nodes.get((file, number), [])})
        return {"name": "source", "lines": lines}

    def _fx(self) -> dict[str, Any]:
        lines: list[dict[str, Any]] = []
        for index, graph in enumerate(self._graphs):
            lines.append({"t": graph.name, "c": "head"})
            lines += [
                {"t": node.text, "n": [self._ids[index, node.name]], "c": _colour(node), "s": node.why}
                for node in graph.nodes
            ]
        return {"name": "FX", "lines": lines}

    def _stage(self, stage: str) -> Iterator[dict[str, Any]]:
        for index, graph in enumerate(self._graphs):
            for number, region in enumerate(graph.regions):
                yield {"t": f"{graph.name}, region {number}", "c": f"head r{number % _COLOURS}"}
                for line in read_mlir(region.stages.get(stage, "")):
                    yield {"t": line.text, "n": self._numbers(index, line)}

    def _dispatches(self) -> Iterator[dict[str, Any]]:
        for index, graph in enumerate(self._graphs):
            for number, region in enumerate(graph.regions):
                if region.dispatches:
                    yield {"t": f"{graph.name}, region {number}", "c": f"head r{number % _COLOURS}"}
                longest = max((seconds for _, seconds, _ in region.dispatches), default=0.0) or 1.0
                for name, seconds, nodes in region.dispatches:
                    numbers = self._numbers(index, Line(name, nodes))
                    yield {"t": f"{seconds * 1e3:9.3f} ms  {name}", "n": numbers, "w": round(100 * seconds / longest)}

    def _numbers(self, graph: int, line: Line) -> list[int]:
        return [self._ids[graph, name] for name in line.nodes if (graph, name) in self._ids]


def _around(numbers: Iterable[int]) -> list[int]:
    wanted = {near for number in numbers for near in range(max(1, number - _LINES_AROUND), number + _LINES_AROUND + 1)}
    return sorted(wanted)


def _colour(node: InspectedNode) -> str:
    if node.region is not None:
        return f"r{node.region % _COLOURS}"
    return "eager" if node.why else ""
