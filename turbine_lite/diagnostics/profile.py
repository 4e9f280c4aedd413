"""``turbine_lite.profile``: where the time of a call goes."""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from turbine_lite.backend import compile_captured
from turbine_lite.compile_graph import GraphBuild
from turbine_lite.diagnostics.alone import compile_alone
from turbine_lite.diagnostics.dump import Dump
from turbine_lite.diagnostics.gradients import backpropagate
from turbine_lite.diagnostics.inspection import InspectedGraph
from turbine_lite.diagnostics.profiled import (
    TORCH_MARK,
    EagerTime,
    NodeTime,
    Profile,
    RegionTime,
)
from turbine_lite.diagnostics.profiled_region import STAGES_OF_PROFILES, ProfiledGraph, ProfiledRegion
from turbine_lite.diagnostics.roofline import bytes_of, flops_of, measured_peaks
from turbine_lite.diagnostics.timeline import Event, Timeline, seconds_of
from turbine_lite.graph.source import source_line
from turbine_lite.graph.support import op_name
from turbine_lite.options import Options
from turbine_lite.runtime.memory import keep_freed_memory

__all__ = ["profile"]

# Trials of drivers, and of eager, end within so many calls.
_WARM_UP = 20
_SECONDS_OF_WARM_UP = 10.0


def profile(
    function: Callable[..., Any],
    *args: Any,
    runs: int = 20,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    dynamic: bool | None = None,
    backward: bool = False,
    **kwargs: Any,
) -> Profile:
    """Compile a function, call it, and say where the time goes: Dynamo, AOTAutograd, kernels, IREE and its dispatches.

    The function is called some dozens of times on these arguments, with and without clocks in it, and in eager. A
    function that calls ``backward()`` itself is a training step; of a model alone, ``backward`` makes one.

    Dispatches are timed by IREE's own profiler, in a process of its own.

    Args:
        function: a function or module; of a compiled one, what was compiled.
        args, kwargs: its arguments.
        runs: how many calls are timed.
        backward: the gradients of the sum of the results are computed after each call, as part of it.
        mode, options, dynamic: as for ``torch.compile``. With ``autotune``, what is profiled is the default version.

    Returns:
        Seconds are medians over the calls.

    Raises:
        ValueError: ``runs`` is not above 0.
        OptionError: an option or mode is unknown, or has a wrong type or value.
        UnsupportedError: an argument is no strided CPU tensor.
        CompilationError: with ``fallback="error"`` only, a part of a graph cannot be compiled.
    """
    if runs < 1:
        raise ValueError(f"runs must be above 0, not {runs}")
    original: Callable[..., Any] = getattr(function, "_torchdynamo_orig_callable", function)
    original = getattr(original, "_orig_mod", original)
    resolved = Options.resolve(options, mode)
    keep_freed_memory(resolved.retain_bytes)
    with tempfile.TemporaryDirectory(prefix="turbine-lite-profile-") as folder:
        chosen = dataclasses.replace(
            resolved,
            verify=False,
            compile="blocking",
            dump_dir=folder,
            dump_stages=STAGES_OF_PROFILES,
            compile_flags=(*resolved.compile_flags, "--mlir-print-debuginfo"),
        )
        profiling = _Profiling(chosen, Path(folder))
        compiled = compile_alone(original, profiling.backend, dynamic)
        call = _step(compiled, args, kwargs, backward=backward)
        profiling.warm_up(call)
        wall, events = _timed_in_turns(profiling.timeline, call, runs)
        eager_call = _step(original, args, kwargs, backward=backward)
        last_call, torch_events = _traced(profiling.timeline, call, Path(folder))
        return Profile(
            wall_seconds=statistics.median(wall),
            parts=_parts(events),
            nodes=profiling.node_times(events),
            regions=profiling.region_times(events),
            eager=_eager_times(eager_call, runs),
            peaks=measured_peaks(),
            last_call=last_call,
            torch_events=torch_events,
            graphs=profiling.inspected(),
        )


def _step(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, backward: bool
) -> Callable[[], None]:
    """What is timed."""

    def call() -> None:
        results = function(*args, **kwargs)
        if backward:
            backpropagate(results)

    return call


class _Profiling:
    """Graphs that are compiled with clocks in them."""

    def __init__(self, options: Options, folder: Path) -> None:
        self.timeline = Timeline()
        self._options = options
        self._folder = folder
        self._nodes: dict[str, NodeTime] = {}
        self._graphs: list[ProfiledGraph] = []

    def backend(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """A backend of Dynamo."""
        run = compile_captured(gm, example_inputs, self._options, self._compile_one)
        return self.timeline.wrap(run, "captured", "")

    def _compile_one(self, gm: GraphModule, options: Options, kind: str) -> Callable[[list[Any]], Any]:
        number = len(self._graphs)
        graph = ProfiledGraph(f"graph {number}, {kind}", gm)
        self._graphs.append(graph)
        folder = self._folder / f"graph_{number}"
        folder.mkdir()

        def build_region(region: GraphModule, options: Options, dump: Dump, **hooks: Any) -> ProfiledRegion:
            name = f"graph {number} region {len(graph.regions)}"
            # Where a trial leaves it to eager.
            self._nodes[name] = NodeTime(name, "a region, left to eager", "", 0.0, 0, None)
            graph.regions.append(ProfiledRegion(self.timeline, name, region, options, dump, **hooks))
            return graph.regions[-1]

        build = GraphBuild(
            gm,
            options,
            kind,
            Dump(folder),
            build_region=build_region,
            on_outer=functools.partial(self._watch, f"graph {number}"),
        )
        run = build.finish()
        graph.report = run.report
        boxed: Callable[[list[Any]], Any] = self.timeline.wrap(run, "graph", f"graph {number}")
        vars(boxed).update(_boxed_call=True, report=run.report)
        return boxed

    def _watch(self, graph: str, outer: GraphModule) -> None:
        """Put clocks around all calls of a graph but those of regions, which have their own."""
        for node in outer.graph.nodes:
            if node.op != "call_function" or node.target is operator.getitem:
                continue
            name = f"{graph} {node.name}"
            work, size = flops_of(node), bytes_of(node)
            self._nodes[name] = NodeTime(node.name, op_name(node), source_line(node), 0.0, work, size)
            timed = self.timeline.wrap(node.target, "kernel", name)
            timed.__name__ = f"timed_{node.name}"
            node.target = timed
        outer.recompile()

    def warm_up(self, call: Callable[[], Any]) -> None:
        """Call until nothing is tried out any more, then put clocks into what has won."""
        started = time.perf_counter()
        for _ in range(_WARM_UP):
            call()
            takes_long = time.perf_counter() - started > _SECONDS_OF_WARM_UP
            if takes_long and all(region.is_settled for region in self._regions()):
                break
        for region in self._regions():
            region.watch_invocations()

    def _regions(self) -> list[ProfiledRegion]:
        return [region for graph in self._graphs for region in graph.regions]

    def inspected(self) -> tuple[InspectedGraph, ...]:
        """What was compiled."""
        return tuple(graph.inspected() for graph in self._graphs)

    def node_times(self, events: Sequence[Event]) -> tuple[NodeTime, ...]:
        """The calls that run outside of IREE, the slowest first."""
        seconds = _median_by_name(events, lambda event: event.kind == "kernel")
        timed = [
            dataclasses.replace(node, seconds=seconds[name]) for name, node in self._nodes.items() if name in seconds
        ]
        return tuple(sorted(timed, key=lambda node: -node.seconds))

    def region_times(self, events: Sequence[Event]) -> tuple[RegionTime, ...]:
        """What runs in IREE."""
        whole = _median_by_name(events, lambda event: event.kind == "region")
        invoke = _median_by_name(events, lambda event: event.kind == "invoke")
        return tuple(
            RegionTime(
                region.name,
                region.driver,
                whole.get(region.name, 0.0),
                invoke.get(region.name, 0.0),
                region.dispatch_times,
            )
            for region in self._regions()
            if region.is_complete and region.name in whole
        )


def _timed_in_turns(timeline: Timeline, call: Callable[[], Any], runs: int) -> tuple[list[float], list[Event]]:
    """Seconds of calls without clocks in them, and the events of calls with."""
    wall, events = [], []
    for _ in range(runs):
        wall.append(seconds_of(call))
        events.append(timeline.record(call))
    return wall, events


def _traced(timeline: Timeline, call: Callable[[], Any], folder: Path) -> tuple[Event, list[dict[str, Any]]]:
    """A call by our clocks and by torch's profiler."""
    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler,
        torch.profiler.record_function(TORCH_MARK),
    ):
        event = timeline.record(call)
    profiler.export_chrome_trace(str(folder / "torch.json"))
    return event, json.loads((folder / "torch.json").read_text())["traceEvents"]


def _parts(calls: Sequence[Event]) -> dict[str, float]:
    """Medians of the seconds of each part of a call."""
    totals = []
    for call in calls:
        total: defaultdict[str, float] = defaultdict(float)
        for event in call.walk():
            if event.kind == "region" and event.children:
                invoke = event.children[0]
                total["marshalling in"] += (invoke.start - event.start) / 1e9
                total["marshalling out"] += (event.end - invoke.end) / 1e9
            else:
                total[_PARTS[event.kind]] += event.own_seconds
        totals.append(total)
    return {part: statistics.median(total[part] for total in totals) for part in Profile.PARTS}


_PARTS = {
    "call": "dynamo",
    "captured": "aot wrapper",
    "graph": "graph",
    "kernel": "kernels",
    "region": "marshalling in",
    "invoke": "iree",
}


def _median_by_name(calls: Sequence[Event], wanted: Callable[[Event], bool]) -> dict[str, float]:
    totals: dict[str, list[float]] = {}
    for number, call in enumerate(calls):
        for event in call.walk():
            if wanted(event):
                totals.setdefault(event.name, [0.0] * len(calls))[number] += event.seconds
    return {name: statistics.median(seconds) for name, seconds in totals.items()}


def _eager_times(call: Callable[[], Any], runs: int) -> EagerTime:
    """A call in eager, and its operators by torch's profiler."""
    for _ in range(2):
        call()
    seconds = [seconds_of(call) for _ in range(runs)]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        call()
    operators = {row.key: row.self_cpu_time_total / 1e6 for row in profiler.key_averages()}
    slowest = sorted(operators.items(), key=lambda item: -item[1])
    return EagerTime(statistics.median(seconds), dict(slowest))
