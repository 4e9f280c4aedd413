"""One region -> an executable."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future
from typing import NamedTuple

from torch.fx import GraphModule

from turbine_lite.compiler.cached import start_compiling
from turbine_lite.compiler.driver import Compiled, compile_to_vmfb
from turbine_lite.compiler.flags import Traits, flag_sets
from turbine_lite.compiler.parallel import start
from turbine_lite.diagnostics.dump import Dump
from turbine_lite.diagnostics.trace import trace_json, trace_text
from turbine_lite.errors import CompilationError
from turbine_lite.graph.for_iree import make_ready_for_iree
from turbine_lite.graph.insertion import copy_graph_module
from turbine_lite.graph.parameters import choose_parameters
from turbine_lite.graph.signature import Signature, specialize_signature
from turbine_lite.graph.work import choose_driver
from turbine_lite.mlir.importer import ImportedModule, import_region
from turbine_lite.options import Options
from turbine_lite.runtime.executable import Hooks, SpecializedExecutable
from turbine_lite.runtime.trial import DriverTrial, Program

__all__ = ["ImportedRegion", "RegionBuild", "import_for_iree", "prepare"]


class RegionBuild:
    """A region on its way to an executable: imported, and given to the compiler; ``region`` is left as it is.

    Args:
        region: the graph module.
        options: the user's choices.
        dump: where to write its stages.
        hooks: what the executable turns to.
        changing: positions of arguments that are no parameters for the program, although the graph says so.

    Raises:
        CompilationError: the region cannot be imported.
        UnsupportedError: its arguments or results are of a kind that cannot cross to IREE.

    Attributes:
        compiled: what the compiler is making.
    """

    def __init__(
        self,
        region: GraphModule,
        options: Options,
        dump: Dump,
        *,
        hooks: Hooks | None = None,
        changing: frozenset[int] = frozenset(),
    ) -> None:
        imported = import_for_iree(region, options, dump, changing)
        self._signature = imported.signature
        self._flags = flag_sets(options, imported.traits)[0]
        self._dump = dump
        self._hooks = hooks
        self._driver = imported.driver
        self.compiled = _start(imported.module, options, dump, imported.traits)

    def finish(self) -> Program:
        """Wait for the compiler and load what it has made.

        Raises:
            CompilationError: the region cannot be lowered or compiled.
            ExecutionError: the compiled program cannot be loaded.
        """
        try:
            compiled = self.compiled.result()
        except CompilationError as error:
            command = self._dump.command(self._flags)
            self._dump.record(error=error.headline, stage=error.stage, command=command)
            self._dump.write("diagnostics.txt", error.diagnostics)
            self._dump.write_stages(error.stages)
            raise error.located(dump_dir=self._dump.directory, command=command) from error
        _record(self._dump, compiled, self._signature, self._driver)
        trace_json("compiled", lambda: {"flags": compiled.flags.command_line(), "seconds": compiled.seconds})
        if self._driver == "auto":
            return DriverTrial(compiled.vmfb, self._signature, self._hooks)
        return SpecializedExecutable(compiled.vmfb, self._signature, self._driver, self._hooks)


class ImportedRegion(NamedTuple):
    """A region in MLIR's torch dialect: its graph as it was imported, how to call it, flags' traits and the driver."""

    gm: GraphModule
    module: ImportedModule
    signature: Signature
    traits: Traits
    driver: str


def import_for_iree(
    region: GraphModule, options: Options, dump: Dump, changing: frozenset[int] = frozenset()
) -> ImportedRegion:
    """Rewrite a copy of a region for IREE and import it.

    Raises:
        CompilationError: the region cannot be imported.
        UnsupportedError: its arguments or results are of a kind that cannot cross to IREE.
    """
    gm, signature, traits = prepare(region)
    if options.pack_parameters:
        signature = signature.with_parameters(choose_parameters(gm.graph, changing))
    dump.write("fx_graph.py", gm.print_readable(print_output=False) if dump.enabled else "")
    trace_text("fx_graph", lambda: gm.print_readable(print_output=False))
    module = import_region(gm, signature.parameters)
    trace_text("torch_mlir", module.text)
    if dump.enabled:
        dump.write("torch.mlir", module.text(elide_constants=not options.dump_weights))
        dump.write("torch.mlirbc", module.bytecode)
    return ImportedRegion(gm, module, signature, traits, choose_driver(gm.graph, options.driver))


class Prepared(NamedTuple):
    """A region rewritten for IREE, how to call it, and what its flags depend on."""

    gm: GraphModule
    signature: Signature
    traits: Traits


def prepare(region: GraphModule) -> Prepared:
    """Rewrite a copy of a region for IREE."""
    gm = copy_graph_module(region)
    signature = specialize_signature(gm.graph)
    traits, counts = make_ready_for_iree(gm)
    return Prepared(gm, signature.with_count() if counts else signature, traits)


def _start(module: ImportedModule, options: Options, dump: Dump, traits: Traits) -> Future[Compiled]:
    if not dump.enabled:
        return start_compiling(module, options, traits)
    # With the stages of this region, and its node names.
    here = options.compiler == "in-process"
    return start(lambda: compile_to_vmfb(module.bytecode, options, traits), here=here)


def _record(dump: Dump, compiled: Compiled, signature: Signature, driver: str) -> None:
    if not dump.enabled:
        return
    dump.write_stages(compiled.stages)
    dump.write("module.vmfb", compiled.vmfb)
    dump.record(
        flags=compiled.flags.command_line(),
        command=dump.command(compiled.flags),
        driver=driver,
        seconds=compiled.seconds,
        signature=dataclasses.asdict(signature),
    )
