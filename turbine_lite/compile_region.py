"""One region -> an executable."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from torch.fx import GraphModule

from turbine_lite.compiler.cached import compile_cached
from turbine_lite.compiler.driver import Compiled, compile_to_vmfb
from turbine_lite.compiler.flags import Traits, flag_sets
from turbine_lite.diagnostics.dump import Dump
from turbine_lite.errors import CompilationError
from turbine_lite.graph.bounds import check_arguments
from turbine_lite.graph.constants import fold_constants
from turbine_lite.graph.divisors import guard_divisors
from turbine_lite.graph.expand import expand_operators
from turbine_lite.graph.insertion import copy_graph_module
from turbine_lite.graph.narrow_integers import widen_narrow_integers
from turbine_lite.graph.numerics import round_float_scalars
from turbine_lite.graph.parameters import choose_parameters
from turbine_lite.graph.rewrites import rewrite_for_iree
from turbine_lite.graph.scalar_arguments import convert_scalar_arguments
from turbine_lite.graph.signature import Signature, specialize_signature
from turbine_lite.graph.strided_reads import gather_strided_reads
from turbine_lite.graph.traits import traits_of
from turbine_lite.graph.work import choose_driver
from turbine_lite.graph.write_targets import keep_targets_apart
from turbine_lite.mlir.importer import ImportedModule, import_region
from turbine_lite.options import Options
from turbine_lite.runtime.executable import Hooks, SpecializedExecutable
from turbine_lite.runtime.trial import DriverTrial, Program

__all__ = ["compile_region", "prepare"]


def compile_region(
    region: GraphModule,
    options: Options,
    dump: Dump,
    *,
    hooks: Hooks | None = None,
    changing: frozenset[int] = frozenset(),
) -> Program:
    """Import, compile and load a region; ``region`` itself is left as it is.

    Args:
        region: the graph module.
        options: the user's choices.
        dump: where to write its stages.
        hooks: what the executable turns to.
        changing: positions of arguments that are no parameters for the program, although the graph says so.

    Raises:
        CompilationError: the region cannot be imported, lowered or compiled.
        UnsupportedError: its arguments or results are of a kind that cannot cross to IREE.
        ExecutionError: the compiled program cannot be loaded.
    """
    gm, signature, traits = prepare(region)
    if options.pack_parameters:
        signature = signature.with_parameters(choose_parameters(gm.graph, changing))
    dump.write("fx_graph.py", gm.print_readable(print_output=False) if dump.enabled else "")
    driver = choose_driver(gm.graph, options.driver)
    module = import_region(gm, signature.parameters)
    if dump.enabled:
        dump.write("torch.mlir", module.text(elide_constants=not options.dump_weights))
        dump.write("torch.mlirbc", module.bytecode)
    compiled = _compile(module, options, dump, traits)
    _record(dump, compiled, signature, driver)
    if driver == "auto":
        return DriverTrial(compiled.vmfb, signature, hooks)
    return SpecializedExecutable(compiled.vmfb, signature, driver, hooks)


class Prepared(NamedTuple):
    """A region rewritten for IREE, how to call it, and what its flags depend on."""

    gm: GraphModule
    signature: Signature
    traits: Traits


def prepare(region: GraphModule) -> Prepared:
    """Rewrite a copy of a region for IREE."""
    gm = copy_graph_module(region)
    signature = specialize_signature(gm.graph)
    convert_scalar_arguments(gm.graph)
    expand_operators(gm.graph)
    keep_targets_apart(gm.graph)
    if check_arguments(gm, fold_constants(gm)):
        signature = signature.with_count()
    gather_strided_reads(gm.graph)
    widen_narrow_integers(gm)
    rewrite_for_iree(gm.graph)
    guard_divisors(gm.graph)
    traits = traits_of(gm.graph)
    if not traits.keep_f64:
        round_float_scalars(gm.graph)
    return Prepared(gm, signature, traits)


def _compile(module: ImportedModule, options: Options, dump: Dump, traits: Traits) -> Compiled:
    try:
        if dump.enabled:  # with the stages of this region, and its node names
            return compile_to_vmfb(module.bytecode, options, traits)
        return compile_cached(module, options, traits)
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
