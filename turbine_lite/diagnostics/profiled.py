"""What ``turbine_lite.profile`` finds, as data, as text and as a trace."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from turbine_lite.diagnostics.inspection import InspectedGraph
from turbine_lite.diagnostics.inspector import write_page
from turbine_lite.diagnostics.timeline import Event

__all__ = ["TORCH_MARK", "DispatchTime", "EagerTime", "NodeTime", "Peaks", "Profile", "RegionTime"]

_MOST_ROWS = 12

# The event of torch's profiler that began when our call did.
TORCH_MARK = "turbine_lite.profile"

# Of no process: a row of its own.
_PID = 0


@dataclasses.dataclass(frozen=True)
class Peaks:
    """What the machine reaches: ``flops`` a second in a matmul of torch's, ``bytes`` a second in a copy."""

    flops: float
    bytes: float


@dataclasses.dataclass(frozen=True)
class NodeTime:
    """A call of a graph that runs outside of IREE: in a kernel of a library of PyTorch's, or in eager.

    Attributes:
        name: of the FX node.
        op: the operator.
        source: ``file:line in function: code`` of the user's line, or "".
        seconds: of one call of the whole function.
        flops: floating-point operations, a multiply-add being two.
        bytes: of its arguments and results; None where sizes are dynamic.
    """

    name: str
    op: str
    source: str
    seconds: float
    flops: int
    bytes: int | None


@dataclasses.dataclass(frozen=True)
class DispatchTime:
    """One of IREE's kernels in a region.

    Attributes:
        name: IREE's.
        seconds: of all its runs in one call of the whole function, ``calls`` of them.
        nodes: names of the FX nodes that are in it.
        lines: the user's lines these come from, ``file:line``.
        flops: of these nodes, each counted at one dispatch.
        bytes: what it reads and writes; None where sizes are dynamic.
    """

    name: str
    seconds: float
    calls: float
    nodes: tuple[str, ...]
    lines: tuple[str, ...]
    flops: int
    bytes: int | None


@dataclasses.dataclass(frozen=True)
class RegionTime:
    """A part of a graph that runs in IREE.

    Attributes:
        name: of the graph and the region.
        driver: IREE's.
        seconds: of one call of the whole function, with marshalling.
        invoke_seconds: without it.
        dispatches: the slowest first; empty if IREE's profiler cannot run.
    """

    name: str
    driver: str
    seconds: float
    invoke_seconds: float
    dispatches: tuple[DispatchTime, ...]


@dataclasses.dataclass(frozen=True)
class EagerTime:
    """The function in eager: seconds of a call, and of each operator, by torch's profiler, the slowest first."""

    seconds: float
    operators: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Profile:
    """Where the time of a call goes. Seconds are medians.

    Attributes:
        wall_seconds: of a call without clocks in it.
        parts: seconds of each part of a call, by the names of :attr:`PARTS`.
        nodes: what runs outside of IREE, the slowest first.
        regions: what runs in IREE.
        eager: the same function in eager.
        peaks: what the machine reaches.
        last_call: the events of one more call with clocks in it.
        torch_events: what torch's profiler saw of it, as Chrome's trace events.
        graphs: what was compiled, from the user's lines to dispatches.
    """

    PARTS: ClassVar[dict[str, str]] = {
        "dynamo": "Dynamo's guards, autograd, and the function's own Python",
        "aot wrapper": "AOTAutograd's wrapper",
        "graph": "Python between the parts of a graph",
        "kernels": "kernels of PyTorch's libraries, and eager",
        "marshalling in": "IREE: results allocated, arguments handed over",
        "iree": "IREE: the program",
        "marshalling out": "IREE: results checked",
    }

    wall_seconds: float
    parts: Mapping[str, float]
    nodes: tuple[NodeTime, ...]
    regions: tuple[RegionTime, ...]
    eager: EagerTime
    peaks: Peaks
    last_call: Event
    torch_events: Sequence[Mapping[str, Any]]
    graphs: tuple[InspectedGraph, ...]

    def to_json(self) -> str:
        """The times, for machines."""
        names = ("wall_seconds", "parts", "nodes", "regions", "eager", "peaks")
        return json.dumps({name: getattr(self, name) for name in names}, indent=1, default=dataclasses.asdict)

    def to_html(self, file: str | Path, title: str = "turbine_lite") -> None:
        """Write a page with the user's lines, the FX graphs, MLIR and dispatches side by side.

        Raises:
            OSError: the file cannot be written.
        """
        write_page(self.graphs, title, file)

    def write_chrome_trace(self, file: str | Path) -> None:
        """Write one call for Perfetto or ``chrome://tracing``, with what torch's profiler saw of it.

        Dispatches have a row of their own, where they are laid one after the other into the program they belong to:
        their lengths are measured, their places are not.

        Raises:
            OSError: the file cannot be written.
        """
        Path(file).write_text(json.dumps({"traceEvents": list(self._trace_events())}))

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        total = sum(self.parts.values())
        yield (
            f"{_ms(self.wall_seconds)} a call, {_ms(self.eager.seconds)} in eager: "
            f"{self.eager.seconds / self.wall_seconds:.2f} of eager's speed"
        )
        yield ""
        for part, meaning in self.PARTS.items():
            yield f"{_ms(self.parts[part])} {self.parts[part] / total:6.1%}  {meaning}"
        yield f"{_ms(total)}         together, with clocks in between"
        if self.nodes:
            yield from ("", "kernels and eager, the slowest first")
            yield from self._table(self.nodes, lambda node: f"{node.op}  {node.source}")
        for region in self.regions:
            yield from ("", f"{region.name}, {region.driver}: {_ms(region.invoke_seconds)}; its dispatches")
            if not region.dispatches:
                yield "  (IREE's profiler does not run)"
            yield from self._table(region.dispatches, lambda one: f"{one.name}  {', '.join(one.lines[:2])}")
        yield from ("", "eager's operators, by torch's profiler")
        for name, seconds in list(self.eager.operators.items())[:_MOST_ROWS]:
            yield f"  {_ms(seconds)}  {name}"
        yield ""
        flops, moved = self.peaks.flops / 1e9, self.peaks.bytes / 1e9
        yield f"this machine: {flops:.0f} GFLOP/s in a matmul, {moved:.0f} GB/s in a copy"

    def _table(self, rows: Sequence[Any], label: Callable[[Any], str]) -> Iterator[str]:
        yield f"  {'time':>9}  {'GFLOP/s':>8} {'peak':>5}  {'GB/s':>7} {'peak':>5}"
        for row in rows[:_MOST_ROWS]:
            flops = row.flops / row.seconds if row.seconds else 0.0
            moved = (row.bytes or 0) / row.seconds if row.seconds else 0.0
            yield (
                f"  {_ms(row.seconds)}  {flops / 1e9:8.1f} {flops / self.peaks.flops:5.0%}"
                f"  {moved / 1e9:7.1f} {moved / self.peaks.bytes:5.0%}  {label(row)}"
            )
        if len(rows) > _MOST_ROWS:
            yield f"  {_ms(sum(row.seconds for row in rows[_MOST_ROWS:]))}  in {len(rows) - _MOST_ROWS} more"

    def _trace_events(self) -> Iterator[Mapping[str, Any]]:
        yield from self.torch_events
        mark = next((event["ts"] for event in self.torch_events if event.get("name") == TORCH_MARK), 0.0)
        dispatches = {region.name: region.dispatches for region in self.regions}
        yield {"ph": "M", "name": "process_name", "pid": _PID, "args": {"name": "turbine_lite"}}
        for thread, name in ((0, "call"), (1, "dispatches of IREE")):
            yield {"ph": "M", "name": "thread_name", "pid": _PID, "tid": thread, "args": {"name": name}}
        for event in self.last_call.walk():
            name = " ".join(filter(None, (event.kind, event.name)))
            at = mark + (event.start - self.last_call.start) / 1e3
            yield _trace_event(name, 0, at, event.seconds)
            if event.kind != "invoke":
                continue
            for dispatch in dispatches.get(event.name, ()):
                yield _trace_event(dispatch.name, 1, at, dispatch.seconds, lines=", ".join(dispatch.lines))
                at += dispatch.seconds * 1e6


def _trace_event(name: str, thread: int, at: float, seconds: float, **args: str) -> dict[str, Any]:
    """An event of the format, whose times are microseconds."""
    return {"ph": "X", "name": name, "pid": _PID, "tid": thread, "ts": at, "dur": seconds * 1e6, "args": args}


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:6.3f} ms" if seconds < 10 else f"{seconds * 1e3:6.0f} ms"
