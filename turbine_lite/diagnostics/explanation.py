"""What ``turbine_lite.explain`` finds, as data and as text."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch.fx import GraphModule

from turbine_lite.diagnostics.graph_script import write_graph_script
from turbine_lite.diagnostics.inspection import InspectedGraph
from turbine_lite.diagnostics.inspector import write_page
from turbine_lite.graph.report import GraphReport
from turbine_lite.graph.support import EXPECTED_KINDS, Reason

__all__ = ["BreakExplanation", "GraphExplanation", "RegionExplanation", "Report"]

# Reasons that nothing can or need be done about; a size that depends on data may be avoidable.
_BY_NATURE = EXPECTED_KINDS - {"data-dependent"}

_MOST_OPERATORS = 8


@dataclasses.dataclass(frozen=True)
class BreakExplanation:
    """Why Dynamo ended a graph before the function's end.

    Attributes:
        reason: Dynamo's.
        source: ``file:line in function: code`` of the user's line, or "".
    """

    reason: str
    source: str


@dataclasses.dataclass(frozen=True)
class RegionExplanation:
    """A part of a graph that runs in IREE as one program.

    Attributes:
        operators: how often each operator is called, as it was captured; views count here.
        written_out: those of them that IREE gets as other operators (expansions, decompositions, rewrites).
        dtypes: of all tensors in it.
        dynamic_dims: names of the sizes that are not known before a call.
        parameters: how many arguments the program is loaded with, and ``parameter_bytes`` of them.
        constants: how many tensors are part of the program, and ``constant_bytes`` of them.
        driver: "local-sync" (the caller's thread), "local-task" (torch's number of threads) or "auto" (the first calls
            tell).
        flags: name of the first set of compiler flags that is tried.
        command_line: these flags.
        digest: the program's name in the cache.
        found: where the program would come from: "memory", "disk", "refused", "nowhere" or "off".
        nearest: if nowhere, the entry of the cache most like it and in what that differs, or "".
    """

    operators: Mapping[str, int]
    written_out: Mapping[str, int]
    dtypes: tuple[str, ...]
    dynamic_dims: tuple[str, ...]
    parameters: int
    parameter_bytes: int
    constants: int
    constant_bytes: int
    driver: str
    flags: str
    command_line: tuple[str, ...]
    digest: str
    found: str
    nearest: str

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{sum(self.operators.values())} calls: {_counted(self.operators)}"
        if self.written_out:
            yield f"written out as other operators: {_counted(self.written_out)}"
        yield (
            f"{', '.join(self.dtypes)}; {self.parameters} parameters ({_size(self.parameter_bytes)}), "
            f"{self.constants} constants ({_size(self.constant_bytes)})"
            + (f"; dynamic sizes {', '.join(self.dynamic_dims)}" if self.dynamic_dims else "")
        )
        yield f"driver {self.driver}, {self.flags} flags; program {self.digest[:16]}: {_WHERE[self.found]}"
        if self.nearest:
            yield f"nearest program in the cache: {self.nearest}"


_WHERE = {
    "memory": "compiled by this process",
    "disk": "in the cache",
    "refused": "the compiler has refused it before",
    "nowhere": "to be compiled",
    "off": "to be compiled (option cache is off)",
}


@dataclasses.dataclass(frozen=True)
class GraphExplanation:
    """A graph of AOTAutograd.

    Attributes:
        report: what becomes of it.
        regions: details of the regions in the report, in the same order.
        module: the graph itself, in ATen operators.
        inspected: its nodes and what they are in MLIR.
    """

    report: GraphReport
    regions: tuple[RegionExplanation, ...]
    module: GraphModule = dataclasses.field(repr=False, compare=False)
    inspected: InspectedGraph = dataclasses.field(repr=False, compare=False)

    def lines(self) -> Iterator[str]:
        """For people."""
        report = self.report
        share = _share(report.native_calls, report.calls)
        yield f"{report.kind}: {share}, {len(report.regions)} regions, {_size(report.bytes_crossing)} cross"
        for number, (counts, region) in enumerate(zip(report.regions, self.regions, strict=True)):
            yield f"  region {number}: {counts.calls} operators"
            yield from (f"    {line}" for line in region.lines())
        for (op, kind, text), reasons in _grouped(report.reasons).items():
            at = f" at {reasons[0].source}" if reasons[0].source else ""
            yield f"  in eager: {len(reasons)} {op} ({kind}): {text}{at}"


@dataclasses.dataclass(frozen=True)
class Report:
    """What ``torch.compile(function, backend="turbine_lite_cpu")`` would make of a function.

    Attributes:
        graphs: of AOTAutograd, in the order in which they were captured.
        breaks: why there is more than one graph of Dynamo.
        options: all options, by name.
    """

    graphs: tuple[GraphExplanation, ...]
    breaks: tuple[BreakExplanation, ...]
    options: Mapping[str, Any]

    @property
    def calls(self) -> int:
        """Operators of all graphs, without views."""
        return sum(graph.report.calls for graph in self.graphs)

    @property
    def native_calls(self) -> int:
        """Those of them that run in IREE."""
        return sum(graph.report.native_calls for graph in self.graphs)

    @property
    def advice(self) -> tuple[str, ...]:
        """What could be done, one sentence each."""
        return tuple(self._advice())

    def _advice(self) -> Iterator[str]:
        for one in self.breaks:
            yield f"a graph ends at {one.source or 'an unknown line'}: {_first_line(one.reason)}"
        for graph in self.graphs:
            for (op, kind, text), reasons in _grouped(graph.report.reasons).items():
                if kind in _BY_NATURE:
                    continue
                calls = f"{op or 'a region'} runs" if len(reasons) == 1 else f"{len(reasons)} calls of {op} run"
                parts = len(graph.regions)
                cut = f", and the {graph.report.kind} graph is cut in {parts} regions" if parts > 1 else ""
                yield f"{calls} in eager{cut}: {text}"
        if any("torch.float64" in region.dtypes for graph in self.graphs for region in graph.regions):
            yield "float64 takes twice the memory and, in IREE, has no packed matmuls: use float32 if that will do"

    def to_json(self) -> str:
        """All of it but the graphs themselves, with an entry ``advice``."""
        graphs = [
            {"report": dataclasses.asdict(graph.report), "regions": [dataclasses.asdict(one) for one in graph.regions]}
            for graph in self.graphs
        ]
        breaks = [dataclasses.asdict(one) for one in self.breaks]
        content = {"graphs": graphs, "breaks": breaks, "advice": self.advice, "options": dict(self.options)}
        return json.dumps(content, indent=1)

    def to_html(self, file: str | Path, title: str = "turbine_lite") -> None:
        """Write a page with the user's lines, the FX graphs and the torch dialect side by side.

        Raises:
            OSError: the file cannot be written.
        """
        write_page([graph.inspected for graph in self.graphs], title, file)

    def write_repro(self, directory: str | Path) -> list[Path]:
        """Write each graph as a script of its own, see ``graph_script.py``: ``graph_0/reproduce.py`` and so on.

        Returns:
            The scripts.

        Raises:
            OSError: the directory cannot be written.
        """
        return [
            write_graph_script(graph.module, graph.report.kind, self.options, Path(directory) / f"graph_{number}")
            for number, graph in enumerate(self.graphs)
        ]

    def __str__(self) -> str:
        lines = [f"{len(self.graphs)} graphs, {_share(self.native_calls, self.calls)}"]
        for number, graph in enumerate(self.graphs):
            first, *rest = graph.lines()
            lines += [f"graph {number}, {first}", *rest]
        if self.advice:
            lines += ["advice", *(f"- {line}" for line in self.advice)]
        return "\n".join(lines)


def _share(native: int, calls: int) -> str:
    return f"{native} of {calls} operators in IREE ({native / calls if calls else 0:.0%})"


def _grouped(reasons: tuple[Reason, ...]) -> dict[tuple[str, str, str], list[Reason]]:
    """By operator, kind and text."""
    groups: dict[tuple[str, str, str], list[Reason]] = {}
    for reason in reasons:
        groups.setdefault((reason.op, reason.kind, reason.text), []).append(reason)
    return groups


def _counted(counts: Mapping[str, int]) -> str:
    most = Counter(counts).most_common(_MOST_OPERATORS)
    rest = len(counts) - len(most)
    return ", ".join(f"{count} {name}" for name, count in most) + (f" and {rest} others" if rest else "")


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} bytes"
    size = float(count)
    for unit in ("KiB", "MiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} GiB"


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
