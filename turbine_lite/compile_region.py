"""One region -> an executable, and which operators are to blame when that fails."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

import torch
from torch.fx import GraphModule, Node

from turbine_lite.compiler.driver import Compiled, check_lowering, compile_to_vmfb, failed_nodes
from turbine_lite.compiler.flags import Traits, flag_sets
from turbine_lite.diagnostics.dump import Dump
from turbine_lite.errors import CompilationError, CompilerKilledError, CompilerTimeoutError, UnsupportedError
from turbine_lite.graph.bounds import check_indices
from turbine_lite.graph.constants import fold_constants
from turbine_lite.graph.expand import expand_operators
from turbine_lite.graph.insertion import copy_graph_module
from turbine_lite.graph.narrow_integers import widen_narrow_integers
from turbine_lite.graph.numerics import round_float_scalars
from turbine_lite.graph.rewrites import rewrite_for_iree
from turbine_lite.graph.shrink import calls_of, shrink
from turbine_lite.graph.signature import Signature, specialize_signature
from turbine_lite.graph.subgraph import extract_part
from turbine_lite.graph.support import op_name, tensors_of
from turbine_lite.graph.work import choose_driver
from turbine_lite.graph.write_targets import keep_targets_apart
from turbine_lite.mlir.importer import ImportedModule, import_region
from turbine_lite.options import Options
from turbine_lite.runtime.executable import SpecializedExecutable

__all__ = ["CallKey", "blamed_calls", "call_key", "compile_region"]

log = logging.getLogger(__name__)

# What makes two calls alike for the compiler: operator, dtypes and ranks of the tensors, other arguments.
CallKey = tuple[object, ...]


def call_key(node: Node) -> CallKey:
    """The key of a call."""
    constants = torch.fx.map_arg((node.args, node.kwargs), lambda n: None)
    return (node.target, repr(constants), *((tensor.dtype, tensor.dim()) for tensor in tensors_of(node)))


def compile_region(region: GraphModule, options: Options, dump: Dump) -> SpecializedExecutable:
    """Import, compile and load a region; ``region`` itself is left as it is.

    Raises:
        CompilationError: the region cannot be imported, lowered or compiled.
        UnsupportedError: its arguments or results are of a kind that cannot cross to IREE.
        ExecutionError: the compiled program cannot be loaded.
    """
    gm, signature, traits = _prepare(region)
    dump.write("fx_graph.py", gm.print_readable(print_output=False) if dump.enabled else "")
    driver = choose_driver(gm.graph, options.driver)
    module = import_region(gm)
    if dump.enabled:
        dump.write("torch.mlir", module.text(elide_constants=not options.dump_weights))
        dump.write("torch.mlirbc", module.bytecode)
    compiled = _compile(module, options, dump, traits)
    _record(dump, compiled, signature, driver)
    return SpecializedExecutable(compiled.vmfb, signature, driver)


def blamed_calls(region: GraphModule, error: CompilationError, options: Options) -> dict[CallKey, str]:
    """The calls at fault for a failed compilation, with what the compiler says of each; empty if none can be named.

    The diagnostics name nodes most of the time: all of a fused kernel, of which one may be at fault. Where they name
    none, or none that fails alone, each distinct call is tried alone. What fails only together with others is found
    by bisection.
    """
    texts = failed_nodes(error) | {reason.node: reason.text for reason in error.reasons if reason.node}
    named = {call_key(node): texts[node.name] for node in _calls(region) if node.name in texts}
    if error.stage == "import" or (named and error.stage == "lower"):
        return named
    if error.stage == "flags" or isinstance(error, (CompilerTimeoutError, CompilerKilledError)):
        return {}  # no operator's fault, or one that costs as much again to find
    compile_too = error.stage == "compile"
    blamed = _failing_alone(region, options, named, compile_too=compile_too)
    if not blamed and not named:
        blamed = _failing_alone(region, options, None, compile_too=compile_too)
    if not blamed and compile_too:
        blamed = _failing_together(region, error, options)
    return blamed or named


def _calls(region: GraphModule) -> Iterator[Node]:
    """What can be blamed: an item of a result runs where its producer does, so blaming it would move nothing."""
    return (node for node in calls_of(region) if "val" in node.meta)


def _failing_alone(
    region: GraphModule, options: Options, among: Container[CallKey] | None, *, compile_too: bool
) -> dict[CallKey, str]:
    blamed: dict[CallKey, str] = {}
    tried: set[CallKey] = set()
    for node in _calls(region):
        key = call_key(node)
        if key not in tried and (among is None or key in among):
            tried.add(key)
            text = _failure_of(region, [node], options, compile_too=compile_too)
            if text is not None:
                blamed[key] = text
    return blamed


def _failing_together(region: GraphModule, error: CompilationError, options: Options) -> dict[CallKey, str]:
    """The last of a few calls that do not compile as one program."""

    def fails(nodes: Sequence[Node]) -> bool:
        return _failure_of(region, nodes, options, compile_too=True) is not None

    calls = list(_calls(region))
    if len(calls) < 2 or not fails(calls):
        return {}
    return {call_key(shrink(calls, fails)[-1]): error.headline}


def _failure_of(region: GraphModule, nodes: Sequence[Node], options: Options, *, compile_too: bool) -> str | None:
    log.debug("trying %s alone", ", ".join(op_name(node) for node in nodes))
    try:
        gm, _, traits = _prepare(extract_part(region, nodes).gm)
        module = import_region(gm)
        if compile_too:
            compile_to_vmfb(module.bytecode, dataclasses.replace(options, dump_dir=None), traits)
        else:
            check_lowering(module.bytecode, options, traits)
    except UnsupportedError:
        return None
    except CompilationError as error:
        return error.headline
    return None


class _Prepared(NamedTuple):
    """A region rewritten for IREE, how to call it, and what its flags depend on."""

    gm: GraphModule
    signature: Signature
    traits: Traits


def _prepare(region: GraphModule) -> _Prepared:
    gm = copy_graph_module(region)
    signature = specialize_signature(gm.graph)
    expand_operators(gm.graph)
    keep_targets_apart(gm.graph)
    if check_indices(gm, fold_constants(gm)):
        signature = signature.with_count()
    widen_narrow_integers(gm)
    rewrite_for_iree(gm.graph)
    keep_f64 = any(tensor.dtype is torch.float64 for node in gm.graph.nodes for tensor in tensors_of(node))
    if not keep_f64:
        round_float_scalars(gm.graph)
    dynamic = any(not isinstance(n, int) for node in gm.graph.nodes for t in tensors_of(node) for n in t.shape)
    batched = any(node.target is torch.ops.aten.bmm.default for node in gm.graph.nodes)
    return _Prepared(gm, signature, Traits(keep_f64, dynamic, batched))


def _compile(module: ImportedModule, options: Options, dump: Dump, traits: Traits) -> Compiled:
    try:
        return compile_to_vmfb(module.bytecode, options, traits)
    except CompilationError as error:
        command = dump.command(flag_sets(options, traits)[0])
        dump.record(error=error.headline, stage=error.stage, command=command)
        dump.write("diagnostics.txt", error.diagnostics)
        raise error.located(dump_dir=dump.directory, command=command) from error


def _record(dump: Dump, compiled: Compiled, signature: Signature, driver: str) -> None:
    if not dump.enabled:
        return
    for stage, text in compiled.stages.items():
        dump.write(f"{stage}.mlir", text)
    dump.write("module.vmfb", compiled.vmfb)
    dump.record(
        flags=compiled.flags.command_line(),
        command=dump.command(compiled.flags),
        driver=driver,
        seconds=compiled.seconds,
        signature=dataclasses.asdict(signature),
    )
