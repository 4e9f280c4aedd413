"""One graph of AOTAutograd -> a callable: partition, then import, compile and load each region."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import itertools
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple

from torch._dynamo.utils import counters
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes

from turbine_lite.background import Background
from turbine_lite.blame import Blame, call_key
from turbine_lite.compile_region import RegionBuild
from turbine_lite.diagnostics.dump import Dump, open_dump
from turbine_lite.diagnostics.trace import trace_json
from turbine_lite.diagnostics.verify import VerifiedGraph, WatchedRegion
from turbine_lite.errors import (
    CompilationError,
    CompilerCrashError,
    CompilerKilledError,
    CompilerTimeoutError,
    ExecutionError,
    TurbineLiteError,
    UnsupportedError,
)
from turbine_lite.graph.decompositions import draws_random_numbers
from turbine_lite.graph.eager import run_in_eager
from turbine_lite.graph.extern import KERNEL, mark_written, use_kernels
from turbine_lite.graph.once import split_off_once
from turbine_lite.graph.parameters import mark_parameters
from turbine_lite.graph.partition import partition
from turbine_lite.graph.report import GraphReport, RegionReport, compute_calls
from turbine_lite.graph.support import EXPECTED_KINDS, Reason, is_own_operator, reason_for, tensors_of, why_not
from turbine_lite.graph.work import LARGE_ENOUGH_FOR_THREADS, operations_of
from turbine_lite.mlir.importer import why_not_importable
from turbine_lite.options import Options
from turbine_lite.progress import show_until_done
from turbine_lite.runtime.eager_trial import EagerTrial
from turbine_lite.runtime.executable import Hooks
from turbine_lite.runtime.once import WithConstants
from turbine_lite.runtime.trial import Program

__all__ = ["GraphBuild", "compile_graph"]

log = logging.getLogger("turbine_lite")

# What has a method that takes the arguments in a sequence, as AOTAutograd passes them.
_RUN_BY_SEQUENCE = (Program, EagerTrial)


# From a region, options, dump and (by name) hooks to its build.
BuildRegion = Callable[..., Any]
# Gets each graph module that calls regions and kernels.
OnOuter = Callable[[GraphModule], None]

# Of the graphs of this process, for whoever watches.
_numbers = itertools.count(1)


def compile_graph(gm: GraphModule, options: Options, kind: str) -> Callable[[list[Any]], Any]:
    """Compile a graph module.

    Args:
        gm: a functional graph of ATen operators whose nodes carry fake values, as AOTAutograd makes them.
        options: the user's choices.
        kind: ``"inference"``, ``"forward"`` or ``"backward"``; names the dump.

    Returns:
        A function that takes the list of arguments, empties it (AOTAutograd's boxed convention) and returns what
        ``gm`` returns. Its attribute ``report`` is a :class:`~turbine_lite.graph.report.GraphReport`.

    Raises:
        CompilationError, UnsupportedError: only with ``options.fallback == "error"``.
    """
    build = GraphBuild(gm, options, kind, open_dump(options.dump_dir, kind))
    if options.compile == "background":
        in_eager = make_boxed_func(functools.partial(run_in_eager, gm))
        return Background(in_eager, build, GraphReport(kind, compute_calls(gm), (), ()))
    run: Any = build.finish()
    run.report.add_to(counters["turbine_lite"])
    function: Callable[[list[Any]], Any] = run
    return function


class GraphBuild:
    """A graph on its way to a callable: cut into regions, which are given to the compiler.

    Args:
        gm, options, kind: as for :func:`compile_graph`.
        dump: where to write what it is made from.
        build_region: what takes the place of :class:`~turbine_lite.compile_region.RegionBuild`.
        on_outer: called with each graph module that calls regions and kernels; it may change that, and must recompile
            it then.

    Attributes:
        has_kernels: whether some of its operators stay with kernels of PyTorch's libraries.
    """

    def __init__(
        self,
        gm: GraphModule,
        options: Options,
        kind: str,
        dump: Dump,
        *,
        build_region: BuildRegion | None = None,
        on_outer: OnOuter | None = None,
    ) -> None:
        self._gm, self._kind, self._dump = gm, kind, dump
        if dump.enabled:
            dump.write("fx_graph.py", gm.print_readable(print_output=False))
        is_inference = kind == "inference"
        if is_inference:
            mark_parameters(gm)
            # These run the graph more than once on the same arguments.
            if not (options.verify or (options.autotune and _draws_random_numbers(gm))):
                mark_written(gm)
        self._with_kernels = use_kernels(gm, options.extern, pack=is_inference and options.pack_parameters)
        self.has_kernels = self._with_kernels is not gm
        if is_inference and self.has_kernels:
            options = _beside_kernels(options, self._with_kernels)
        what = f"graph {next(_numbers)}, {kind}"
        self._compiler = _GraphCompiler(options, dump, what, build_region or RegionBuild, on_outer)
        self._parts = self._compiler.begin(self._with_kernels)

    def wait(self) -> None:
        """Return when the compiler is done with all regions."""
        concurrent.futures.wait(self._parts.builds())

    def finish(self) -> Any:
        """Wait for the compiler; returns what :func:`compile_graph` does."""
        gm, compiler = self._gm, self._compiler
        run = compiler.finish(self._parts)
        if compiler.options.verify and compiler.compiled:
            run = VerifiedGraph(gm, run, compiler.watched, compiler.options, self._dump)
        calls = compute_calls(self._with_kernels)
        report = GraphReport(self._kind, calls, tuple(compiler.compiled), tuple(compiler.reasons))
        self._dump.record(**dataclasses.asdict(report))
        self._dump.add_to_index(
            f"{report.native_calls} of {report.calls} operators in IREE, {len(report.regions)} regions"
        )
        trace_json("report", lambda: dataclasses.asdict(report))
        if not isinstance(run, _RUN_BY_SEQUENCE) and any(_is_complex(node) for node in gm.graph.nodes):
            run = _outside_of_modes(run)
        boxed = _boxed(run)
        boxed.report = report
        return boxed


def _beside_kernels(options: Options, gm: GraphModule) -> Options:
    """The options for the regions of an inference graph with kernels.

    Kernels leave OpenMP's threads spinning for a while, on the CPUs that IREE's would need: a region on one thread is
    the faster one, unless there is much to do.
    """
    left = sum(operations_of(node) for node in gm.graph.nodes if node.op == "call_function" and KERNEL not in node.meta)
    if options.driver == "auto" and left < LARGE_ENOUGH_FOR_THREADS:
        return dataclasses.replace(options, driver="local-sync")
    return options


def _draws_random_numbers(gm: GraphModule) -> bool:
    """Whether a second run on the same arguments may write other things, or to other places, than the first."""
    return any(is_own_operator(node.target) and draws_random_numbers(node.target) for node in gm.graph.nodes)


def _is_complex(node: Node) -> bool:
    return any(tensor.is_complex() for tensor in tensors_of(node))


def _outside_of_modes(run: Callable[..., Any]) -> Callable[..., Any]:
    """AOTAutograd watches first calls through a dispatch mode, in which PyTorch 2.13's complex ``pinv`` is wrong."""

    def call(*args: Any) -> Any:
        with _disable_current_modes():
            return run(*args)

    return call


def _boxed(run: Callable[..., Any]) -> Any:
    if not isinstance(run, _RUN_BY_SEQUENCE):
        return make_boxed_func(run)
    boxed: Any = functools.partial(run.run)  # one call less on the way to the program
    boxed._boxed_call = True  # what AOTAutograd looks for
    return boxed


@dataclasses.dataclass
class _Begun:
    """A region and its build, or the error in the place of it."""

    region: GraphModule
    build: RegionBuild | Exception
    started: float

    def finish(self) -> Program:
        if isinstance(self.build, Exception):
            raise self.build
        return self.build.finish()


class _BegunGraph(NamedTuple):
    """A graph that is cut: the calls of its regions, by name, are yet to get what they call."""

    outer: GraphModule
    regions: dict[str, _Begun]

    def builds(self) -> list[Future[Any]]:
        """What the compiler is making."""
        return [region.build.compiled for region in self.regions.values() if not isinstance(region.build, Exception)]


class _GraphCompiler:
    """Compiles one graph, and the parts of it that remain when a region of it fails."""

    def __init__(
        self, options: Options, dump: Dump, what: str, build_region: BuildRegion, on_outer: OnOuter | None
    ) -> None:
        self.options = options
        self.dump = dump
        self.what = what
        self._build_region = build_region
        self._on_outer = on_outer or _nothing
        # Who explains a graph has the reasons in the report; a warning that comes once is for who runs it.
        self._warns = build_region is RegionBuild
        self.regions = 0
        self.compiled: list[RegionReport] = []
        self.reasons: list[Reason] = []
        self.watched: list[WatchedRegion] = []
        self.blame = Blame(options)

    def begin(self, gm: GraphModule) -> _BegunGraph:
        """Cut ``gm`` into regions and give these to the compiler, which works on several at once."""
        parts = partition(gm, self._why_not, self.options.min_block_size)
        self._report(parts.reasons)
        outer = parts.outer if parts.regions else gm
        return _BegunGraph(outer, {name: self._begin(region) for name, region in parts.regions.items()})

    def finish(self, begun: _BegunGraph) -> Callable[..., Any]:
        """A callable with the graph's signature that runs what it can in IREE."""
        outer = begun.outer
        show_until_done(f"compiling {self.what}", begun.builds(), show=self.options.progress)
        is_one_region = bool(begun.regions) and self._is_one_region(outer)
        for name, region in begun.regions.items():
            delattr(outer, name)
            setattr(outer, name, self._finish(region, beside=not is_one_region))
        if is_one_region:
            return _call_without_graph(outer)
        split = split_off_once(outer)
        if split is not None:
            self._on_outer(split.main)
            return WithConstants(split)
        self._on_outer(outer)
        outer.recompile()
        return outer.forward

    def _why_not(self, node: Node) -> Reason | None:
        reason: Reason | None = node.meta.get(KERNEL)
        if reason is not None:
            return reason
        reason = why_not(node, self.options.disabled_ops) or why_not_importable(node)
        if reason is None and self.blame.found and call_key(node) in self.blame.found:
            reason = reason_for(node, "not-lowered", self.blame.found[call_key(node)])
        return reason

    def _begin(self, region: GraphModule) -> _Begun:
        dump = self.dump.subdirectory(f"region_{self.regions}") if self.dump.enabled else self.dump
        self.regions += 1
        started = time.monotonic()
        build: RegionBuild | Exception
        try:
            build = self._build_region(region, self.options, dump, hooks=_hooks(region, self.options))
        except Exception as error:  # of which kind, matters when the region's turn comes
            build = error
        return _Begun(region, build, started)

    def _finish(self, begun: _Begun, *, beside: bool) -> Callable[..., Any]:
        """The region as an executable, as smaller regions around the operators at fault, or in eager."""
        region = begun.region
        try:
            executable = begun.finish()
        except CompilationError as error:
            if self.blame.search(region, error, time.monotonic() - begun.started):
                log.info("compiling again around %s", ", ".join(set(self.blame.found.values())))
                return self.finish(self.begin(region))
            self._report(error.reasons or (_reason_of(error),), error)
            return region.forward
        except (UnsupportedError, ExecutionError) as error:
            self._report((Reason("layout", str(error)),), error)
            return region.forward
        except Exception as error:  # a fault of ours must not take down what eager can run
            log.debug("internal error", exc_info=True)
            self._report((Reason("internal", f"internal error: {type(error).__name__}: {error}"),), error)
            return region.forward
        self.compiled.append(RegionReport.of(region))
        if not self.options.verify:
            return self._unless_faster_in_eager(executable, region, beside)
        self.watched.append(WatchedRegion(region, executable))
        return self.watched[-1]

    def _unless_faster_in_eager(self, program: Program, region: GraphModule, beside: bool) -> Callable[..., Any]:
        if self.options.extern != "auto":
            return program
        return EagerTrial(program, region.forward, beside, _count_as_left_to_eager)

    def _report(self, reasons: Iterable[Reason], error: Exception | None = None) -> None:
        for reason in reasons:
            if reason in self.reasons:
                continue
            self.reasons.append(reason)
            is_expected = reason.kind in EXPECTED_KINDS
            if self.options.fallback == "error" and not is_expected:
                if error is not None:
                    raise error
                raise CompilationError(f"cannot compile {reason}", stage="import", reasons=(reason,))
            if is_expected or not self._warns:
                log.info("runs in eager: %s", reason)
            else:
                _warn_once(reason)

    @staticmethod
    def _is_one_region(outer: GraphModule) -> bool:
        """Whether the graph does nothing but call one region and return its results in order."""
        calls = [node for node in outer.graph.nodes if node.op not in ("placeholder", "output")]
        placeholders = [node for node in outer.graph.nodes if node.op == "placeholder"]
        results = outer.graph.output_node().args[0]
        return (
            bool(calls)
            and calls[0].op == "call_module"
            and list(calls[0].args) == placeholders
            and isinstance(results, (list, tuple))
            and list(results) == calls[1:]
            and all(node.args == (calls[0], index) for index, node in enumerate(calls[1:]))
        )


def _nothing(_outer: GraphModule) -> None:
    pass


def _count_as_left_to_eager(iree: float, eager: float) -> None:
    counters["turbine_lite"]["regions left to eager"] += 1


def _call_without_graph(outer: GraphModule) -> Callable[..., Any]:
    region: Callable[..., Any] = getattr(outer, str(next(n for n in outer.graph.nodes if n.op == "call_module").target))
    return region


def _reason_of(error: CompilationError) -> Reason:
    kinds = {CompilerCrashError: "crash", CompilerKilledError: "crash", CompilerTimeoutError: "timeout"}
    return Reason(kinds.get(type(error), "not-lowered"), error.headline)


_warned: set[tuple[str, str]] = set()


def _warn_once(reason: Reason) -> None:
    """One warning for each operator and reason; the source line is that of the first."""
    key = (reason.op, reason.text)
    if key not in _warned:
        _warned.add(key)
        log.warning("turbine_lite runs this in eager: %s", reason)


def _hooks(region: GraphModule, options: Options, changing: frozenset[int] = frozenset()) -> Hooks:
    return Hooks(
        in_eager=functools.partial(run_in_eager, region),
        on_failure=None if options.fallback == "error" else functools.partial(_run_in_eager, region),
        on_change=lambda more: _compile_again(region, options, changing | more),
    )


def _compile_again(region: GraphModule, options: Options, changing: frozenset[int]) -> Callable[..., Any]:
    """The region with these parameters as arguments: they change too often to load the program with them each time."""
    log.info("parameters change from call to call; compiling again with %d of them as arguments", len(changing))
    try:
        hooks = _hooks(region, options, changing)
        return RegionBuild(region, options, open_dump(None, "inference"), hooks=hooks, changing=changing).finish()
    except TurbineLiteError as error:
        _warn_once(Reason("runtime", str(error)))
        return functools.partial(run_in_eager, region)


def _run_in_eager(region: GraphModule, error: ExecutionError) -> Callable[..., Any]:
    _warn_once(Reason("runtime", str(error)))
    return functools.partial(run_in_eager, region)
