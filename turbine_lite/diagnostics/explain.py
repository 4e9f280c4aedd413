"""``turbine_lite.explain``: what would become of a function, without compiling it."""

from __future__ import annotations

import dataclasses
import functools
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch._functorch.config
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from turbine_lite.backend import compile_captured
from turbine_lite.compile_graph import GraphBuild
from turbine_lite.compile_region import import_for_iree
from turbine_lite.compiler.cached import check_cached, look_up
from turbine_lite.compiler.flags import flag_sets
from turbine_lite.compiler.parallel import start
from turbine_lite.diagnostics.alone import compile_alone
from turbine_lite.diagnostics.dump import Dump
from turbine_lite.diagnostics.explanation import BreakExplanation, GraphExplanation, RegionExplanation, Report
from turbine_lite.diagnostics.inspection import (
    TORCH_DIALECT,
    InspectedGraph,
    InspectedRegion,
    inspect_nodes,
)
from turbine_lite.graph.eager import run_in_eager
from turbine_lite.graph.expand import is_expanded
from turbine_lite.graph.rewrites import is_rewritten
from turbine_lite.graph.signature import Signature
from turbine_lite.graph.source import format_line
from turbine_lite.graph.support import op_name, tensors_of
from turbine_lite.options import Options

__all__ = ["explain"]


def explain(
    function: Callable[..., Any],
    *args: Any,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    dynamic: bool | None = None,
    **kwargs: Any,
) -> Report:
    """Capture a function, cut its graphs and lower the regions to IREE's input; nothing is compiled.

    The function is called once, on these arguments, and runs in eager: what it does to them is done. If a result needs
    a gradient, the backward graph is explained, too.

    Args:
        function: a function or module, not compiled.
        args, kwargs: its arguments.
        mode, options, dynamic: as for ``torch.compile``. With ``autotune``, what is explained is the default version.

    Returns:
        Its counts are those that ``torch._dynamo.utils.counters["turbine_lite"]`` has after a call, unless the
        compiler fails after the lowering, which nothing but compiling can tell.

    Raises:
        OptionError: an option or mode is unknown, or has a wrong type or value.
        UnsupportedError: an argument is no strided CPU tensor.
        CompilationError: with ``fallback="error"`` only, a part of a graph cannot be lowered.
    """
    resolved = Options.resolve(options, mode)
    chosen = dataclasses.replace(resolved, verify=False, progress=False, dump_dir=None)
    graphs: list[GraphExplanation] = []
    breaks: list[BreakExplanation] = []

    def backend(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        breaks.extend(_breaks_of(gm))
        return compile_captured(gm, example_inputs, chosen, functools.partial(_explain_graph, graphs))

    explained = compile_alone(function, backend, dynamic)
    with torch._functorch.config.patch(force_non_lazy_backward_lowering=True):
        explained(*args, **kwargs)
    return Report(tuple(graphs), tuple(breaks), dataclasses.asdict(resolved))


def _breaks_of(gm: GraphModule) -> Iterator[BreakExplanation]:
    why: Any = getattr(gm, "compile_subgraph_reason", None)
    if why is None or not why.graph_break:
        return
    frame: traceback.FrameSummary | None = why.user_stack[-1] if why.user_stack else None
    source = "" if frame is None else format_line(frame.filename, frame.lineno, frame.name, frame.line)
    yield BreakExplanation(str(why.reason), source)


def _explain_graph(
    graphs: list[GraphExplanation], gm: GraphModule, options: Options, kind: str
) -> Callable[[list[Any]], Any]:
    regions: list[_Lowering] = []
    build = GraphBuild(gm, options, kind, Dump(None), build_region=functools.partial(_Lowering, regions))
    report = build.finish().report
    inspected = InspectedGraph(
        f"graph {len(graphs)}, {kind}",
        inspect_nodes(gm, [region.region for region in regions], report),
        tuple(InspectedRegion({TORCH_DIALECT: region.torch_dialect}) for region in regions),
    )
    graphs.append(GraphExplanation(report, tuple(region.explanation for region in regions), gm, inspected))
    in_eager: Callable[[list[Any]], Any] = make_boxed_func(functools.partial(run_in_eager, gm))
    return in_eager


class _Lowering:
    """In the place of a :class:`~turbine_lite.compile_region.RegionBuild`: a region that is lowered, and explained."""

    def __init__(
        self, explained: list[_Lowering], region: GraphModule, options: Options, dump: Dump, **hooks: Any
    ) -> None:
        imported = import_for_iree(region, options, dump)
        self.signature: Signature = imported.signature
        self._explained = explained
        self.region = region
        self.torch_dialect = imported.module.text()
        module, traits = imported.module, imported.traits
        lookup = look_up(module, options, traits)
        flags = flag_sets(options, traits)[0]
        arguments = list(region.graph.find_nodes(op="placeholder"))
        parameters = [arguments[index].meta["val"] for index in self.signature.parameters]
        constants = [getattr(imported.gm, str(node.target)) for node in imported.gm.graph.find_nodes(op="get_attr")]
        calls = [node for node in region.graph.nodes if node.op == "call_function"]
        self.explanation = RegionExplanation(
            operators=dict(Counter(map(op_name, calls))),
            written_out=dict(
                Counter(op_name(node) for node in calls if is_expanded(node) or is_rewritten(node.target))
            ),
            dtypes=tuple(sorted({str(tensor.dtype) for node in calls for tensor in tensors_of(node)})),
            dynamic_dims=tuple(sorted(_dynamic_dims(arguments))),
            parameters=len(parameters),
            parameter_bytes=sum(value.nbytes for value in parameters),
            constants=len(constants),
            constant_bytes=sum(value.nbytes for value in constants if isinstance(value, torch.Tensor)),
            driver=imported.driver,
            flags=flags.name,
            command_line=flags.command_line(),
            digest=lookup.digest,
            found=lookup.found,
            nearest="" if lookup.nearest is None else str(lookup.nearest),
        )
        here = options.compiler == "in-process"
        self.compiled = start(lambda: check_cached(module, options, traits, compile_too=False), here=here)

    def finish(self) -> _Lowering:
        """Wait for the lowering.

        Raises:
            CompilationError: the region cannot be lowered.
        """
        self.compiled.result()
        self._explained.append(self)
        return self

    def run(self, args: Sequence[Any]) -> Any:
        """The region in eager."""
        return run_in_eager(self.region, *args)


def _dynamic_dims(arguments: Iterable[Node]) -> set[str]:
    values = [leaf for node in arguments for leaf in tree_leaves(node.meta.get("val"))]
    sizes = [size for value in values if isinstance(value, torch.Tensor) for size in value.shape]
    return {str(size) for size in (*sizes, *values) if isinstance(size, torch.SymInt)}
