"""``turbine_lite.profile``: where the time of a call goes."""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from turbine_lite.backend import compile_captured
from turbine_lite.compile_graph import GraphBuild
from turbine_lite.compile_region import RegionBuild, prepare
from turbine_lite.diagnostics.dispatches import bytes_of_dispatches, origins_of_dispatches, time_dispatches
from turbine_lite.diagnostics.dump import Dump
from turbine_lite.diagnostics.profiled import (
    TORCH_MARK,
    DispatchTime,
    EagerTime,
    NodeTime,
    Profile,
    RegionTime,
)
from turbine_lite.diagnostics.roofline import bytes_of, flops_of, measured_peaks
from turbine_lite.diagnostics.timeline import Event, Timeline
from turbine_lite.errors import ExecutionError
from turbine_lite.graph.source import source_line
from turbine_lite.graph.support import op_name
from turbine_lite.options import Options
from turbine_lite.runtime.executable import SpecializedExecutable
from turbine_lite.runtime.memory import keep_freed_memory
from turbine_lite.runtime.trial import DriverTrial, Program

__all__ = ["profile"]

# Trials of drivers, and of eager, end within so many calls.
_WARM_UP = 20
_SECONDS_OF_WARM_UP = 10.0

_STAGES = ("flow", "executable-sources")


def profile(
    function: Callable[..., Any],
    *args: Any,
    runs: int = 20,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    dynamic: bool | None = None,
    **kwargs: Any,
) -> Profile:
    """Compile a function, call it, and say where the time goes: Dynamo, AOTAutograd, kernels, IREE and its dispatches.

    The function is called some dozens of times on these arguments, with and without clocks in it, and in eager.
    Dispatches are timed by IREE's own profiler, in a process of its own.

    Args:
        function: a function or module; of a compiled one, what was compiled.
        args, kwargs: its arguments.
        runs: how many calls are timed.
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
            dump_stages=_STAGES,
            compile_flags=(*resolved.compile_flags, "--mlir-print-debuginfo"),
        )
        profiling = _Profiling(chosen, Path(folder))
        compile_alone: Any = torch.compile  # whose overloads lack the argument that keeps entries of a function apart
        compiled = compile_alone(original, backend=profiling.backend, dynamic=dynamic, isolate_recompiles=True)
        call = functools.partial(compiled, *args, **kwargs)
        profiling.warm_up(call)
        wall, events = _timed_in_turns(profiling.timeline, call, runs)
        eager_call = functools.partial(original, *args, **kwargs)
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
        )


class _Profiling:
    """Graphs that are compiled with clocks in them."""

    def __init__(self, options: Options, folder: Path) -> None:
        self.timeline = Timeline()
        self._options = options
        self._folder = folder
        self._regions: list[_ProfiledRegion] = []
        self._nodes: dict[str, NodeTime] = {}
        self._graphs = 0

    def backend(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """A backend of Dynamo."""
        run = compile_captured(gm, example_inputs, self._options, self._compile_one)
        return self.timeline.wrap(run, "captured", "")

    def _compile_one(self, gm: GraphModule, options: Options, kind: str) -> Callable[[list[Any]], Any]:
        number, self._graphs = self._graphs, self._graphs + 1
        folder = self._folder / f"graph_{number}"
        folder.mkdir()

        def build_region(region: GraphModule, options: Options, dump: Dump, **hooks: Any) -> _ProfiledRegion:
            name = f"graph {number} region {len(self._regions)}"
            self._regions.append(_ProfiledRegion(self.timeline, name, region, options, dump, **hooks))
            return self._regions[-1]

        build = GraphBuild(
            gm,
            options,
            kind,
            Dump(folder),
            build_region=build_region,
            on_outer=functools.partial(self._watch, f"graph {number}"),
        )
        run = build.finish()
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
            if time.perf_counter() - started > _SECONDS_OF_WARM_UP and all(r.is_settled for r in self._regions):
                break
        for region in self._regions:
            region.watch_invocations()

    def node_times(self, events: Sequence[Event]) -> tuple[NodeTime, ...]:
        """The calls that run outside of IREE, the slowest first."""
        seconds = _median_by_name(events, lambda event: event.kind == "kernel")
        timed = [dataclasses.replace(node, seconds=seconds.get(name, 0.0)) for name, node in self._nodes.items()]
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
                region.dispatch_times(),
            )
            for region in self._regions
            if region.is_complete and region.name in whole
        )


class _ProfiledRegion(RegionBuild):
    """A region whose program has clocks in it, and whose dispatches can be timed."""

    def __init__(
        self, timeline: Timeline, name: str, region: GraphModule, options: Options, dump: Dump, **hooks: Any
    ) -> None:
        # What a trial runs in its place.
        region.forward = timeline.wrap(region.forward, "kernel", name)
        self.name = name
        self._timeline = timeline
        self._folder = dump.path
        self._region = region
        self._executables: tuple[SpecializedExecutable, ...] = ()
        self._trial: DriverTrial | None = None
        self._call: tuple[SpecializedExecutable, Sequence[Any], Sequence[torch.Tensor]] | None = None
        super().__init__(region, options, dump, **hooks)

    def finish(self) -> Program:
        program = super().finish()
        self._trial = program if isinstance(program, DriverTrial) else None
        self._executables = program.rivals if isinstance(program, DriverTrial) else (program,)
        for executable in self._executables:
            self._watch(executable)
        return program

    def _watch(self, executable: SpecializedExecutable) -> None:
        run = executable.run

        def remember(args: Sequence[Any]) -> list[torch.Tensor]:
            results = run(args)
            self._call = executable, args, results
            return results

        # On the object itself, where trials look it up.
        executable.run = self._timeline.wrap(remember, "region", self.name)  # type: ignore[method-assign]

    @property
    def is_settled(self) -> bool:
        """Whether its driver is chosen."""
        return self._trial is None or self._trial.driver != "auto"

    @property
    def is_complete(self) -> bool:
        """Whether it was compiled and called."""
        return self._call is not None

    @property
    def driver(self) -> str:
        """IREE's driver for it."""
        assert self._call is not None
        return self._call[0].driver

    def watch_invocations(self) -> None:
        """Put clocks around the calls of IREE's VM."""
        for executable in self._executables:
            executable.wrap_contexts(lambda context: _TimedContext(context, self._timeline, self.name))

    def dispatch_times(self) -> tuple[DispatchTime, ...]:
        """By IREE's profiler; none if it does not run here."""
        assert self._call is not None
        assert self._folder is not None
        executable, args, results = self._call
        inputs = self._folder / "arguments"
        inputs.mkdir(exist_ok=True)
        try:
            dispatches = time_dispatches(
                executable.vmfb, executable.signature, executable.driver, args, results, inputs
            )
        except ExecutionError:
            return ()
        origins = origins_of_dispatches(_read(self._folder / "executable-sources.mlir"))
        sizes = bytes_of_dispatches(_read(self._folder / "flow.mlir"))
        flops = {node.name: flops_of(node) for node in prepare(self._region).gm.graph.nodes}
        times = []
        for dispatch in sorted(dispatches, key=lambda one: -one.seconds):
            origin = origins.get(dispatch.name)
            nodes = () if origin is None else origin.nodes
            # A node that became several dispatches is counted at the slowest of them.
            work = sum(flops.pop(name, 0) for name in nodes)
            size = sizes.get(dispatch.name)
            times.append(
                DispatchTime(
                    dispatch.name,
                    dispatch.seconds,
                    dispatch.calls,
                    nodes,
                    () if origin is None else tuple(f"{file}:{line}" for file, line in origin.lines),
                    work,
                    None if size is None else int(size * dispatch.calls),
                )
            )
        return tuple(times)


class _TimedContext:
    """A VM context whose invocations are events."""

    def __init__(self, context: Any, timeline: Timeline, name: str) -> None:
        self.invoke = timeline.wrap(context.invoke, "invoke", name)


def _timed_in_turns(timeline: Timeline, call: Callable[[], Any], runs: int) -> tuple[list[float], list[Event]]:
    """Seconds of calls without clocks in them, and the events of calls with."""
    wall, events = [], []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        wall.append(time.perf_counter() - started)
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
    totals: list[Counter[str]] = []
    for call in calls:
        total: Counter[str] = Counter()
        for event in call.walk():
            if event.kind == "region" and event.children:
                invoke = event.children[0]
                total["marshalling in"] += (invoke.start - event.start) / 1e9  # type: ignore[assignment]
                total["marshalling out"] += (event.end - invoke.end) / 1e9  # type: ignore[assignment]
            else:
                total[_PARTS[event.kind]] += event.own_seconds  # type: ignore[assignment]
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
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        call()
    operators = {row.key: row.self_cpu_time_total / 1e6 for row in profiler.key_averages()}
    slowest = sorted(operators.items(), key=lambda item: -item[1])
    return EagerTime(statistics.median(seconds), dict(slowest))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
