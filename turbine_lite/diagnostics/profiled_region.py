"""Regions whose programs have clocks in them, for ``profile``."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from turbine_lite.compile_region import RegionBuild, prepare
from turbine_lite.diagnostics.dispatches import bytes_of_dispatches, origins_of_dispatches, time_dispatches
from turbine_lite.diagnostics.dump import Dump
from turbine_lite.diagnostics.inspection import (
    IREE_INPUT,
    TORCH_DIALECT,
    InspectedGraph,
    InspectedRegion,
    inspect_nodes,
)
from turbine_lite.diagnostics.profiled import DispatchTime
from turbine_lite.diagnostics.roofline import flops_of
from turbine_lite.diagnostics.timeline import Timeline
from turbine_lite.errors import ExecutionError
from turbine_lite.graph.report import GraphReport
from turbine_lite.options import Options
from turbine_lite.runtime.executable import SpecializedExecutable
from turbine_lite.runtime.trial import DriverTrial, Program

__all__ = ["STAGES_OF_PROFILES", "ProfiledGraph", "ProfiledRegion"]

# What is read of a dump.
STAGES_OF_PROFILES = ("iree-input", "flow", "executable-sources")


class ProfiledGraph:
    """A graph of AOTAutograd and its regions."""

    def __init__(self, name: str, gm: GraphModule) -> None:
        self.regions: list[ProfiledRegion] = []
        self.report: GraphReport | None = None
        self._name = name
        self._gm = gm

    def inspected(self) -> InspectedGraph:
        """What became of it."""
        assert self.report is not None
        regions = [region for region in self.regions if region.is_complete]
        nodes = inspect_nodes(self._gm, [region.region for region in regions], self.report)
        return InspectedGraph(self._name, nodes, tuple(region.inspected() for region in regions))


class ProfiledRegion(RegionBuild):
    """A region whose program has clocks in it, and whose dispatches can be timed."""

    def __init__(
        self, timeline: Timeline, name: str, region: GraphModule, options: Options, dump: Dump, **hooks: Any
    ) -> None:
        # What a trial runs in its place.
        region.forward = timeline.wrap(region.forward, "kernel", name)
        self.name = name
        self._timeline = timeline
        self._folder = dump.path
        self.region = region
        self._executables: tuple[SpecializedExecutable, ...] = ()
        self._trial: DriverTrial | None = None
        self._call: tuple[SpecializedExecutable, Sequence[Any], Sequence[torch.Tensor]] | None = None
        super().__init__(region, options, dump, **hooks)

    def finish(self) -> Program:
        """As for other regions, with clocks in it."""
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

    @functools.cached_property
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
        flops = {node.name: flops_of(node) for node in prepare(self.region).gm.graph.nodes}
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

    def inspected(self) -> InspectedRegion:
        """What became of it."""
        assert self._folder is not None
        files = {TORCH_DIALECT: "torch.mlir", IREE_INPUT: "iree-input.mlir"}
        return InspectedRegion(
            {name: _read(self._folder / file) for name, file in files.items()},
            tuple((dispatch.name, dispatch.seconds, dispatch.nodes) for dispatch in self.dispatch_times),
        )


class _TimedContext:
    """A VM context whose invocations are events."""

    def __init__(self, context: Any, timeline: Timeline, name: str) -> None:
        self.invoke = timeline.wrap(context.invoke, "invoke", name)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
