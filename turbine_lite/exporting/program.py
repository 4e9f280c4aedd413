"""Captured graphs -> a module in the torch dialect."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import GraphModule

from turbine_lite.compiler.flags import Traits
from turbine_lite.compiler.lowering import Composite
from turbine_lite.composites import outline_composites, without_marks
from turbine_lite.exporting.capture import Captured
from turbine_lite.graph.bounds import check_arguments
from turbine_lite.graph.expand import expand_operators
from turbine_lite.graph.for_iree import make_ready_for_iree
from turbine_lite.graph.insertion import copy_graph_module
from turbine_lite.graph.rewrites import rewrite_for_lowering
from turbine_lite.graph.scalar_arguments import compare_with_tensors, convert_scalar_arguments
from turbine_lite.graph.traits import traits_of
from turbine_lite.graph.work import choose_driver
from turbine_lite.mlir.importer import (
    ImportedModule,
    constant_attribute,
    embed_constant,
    import_graph,
    imported_module,
    load_parameters,
    new_importer,
    retype,
)

__all__ = ["Program", "build_program"]


@dataclasses.dataclass(frozen=True)
class Program:
    """A module in the torch dialect.

    Attributes:
        module: it.
        arguments: for each entry point, the names of the weights that are its first arguments.
        composites: private functions that are operations in StableHLO.
        traits: what IREE's flags depend on.
        driver: IREE's driver for it.
        counting: entry points whose last result is the number of indices and divisors that eager raises an error for.
    """

    module: ImportedModule
    arguments: dict[str, tuple[str, ...]]
    composites: tuple[Composite, ...]
    traits: Traits
    driver: str
    counting: frozenset[str]


def build_program(
    captured: Mapping[str, Captured],
    *,
    embed: bool = False,
    for_iree: bool = False,
    check: bool = False,
    raw: bool = False,
    parameters: Mapping[str, str] | None = None,
) -> Program:
    """Import entry points as functions of one module.

    Args:
        captured: the graphs, by the names of the functions.
        embed: weights that nothing writes become constants.
        for_iree: rewritten as IREE runs it best; else as torch-mlir's lowerings take it.
        check: see ``Program.counting``.
        raw: nothing is rewritten.
        parameters: from names of weights to the names under which the program is loaded with them.

    Raises:
        CompilationError: an operator cannot be imported.
    """
    importer = new_importer()
    taken = set(captured)
    composites: list[Composite] = []
    arguments: dict[str, tuple[str, ...]] = {}
    found: list[Traits] = []
    drivers: list[str] = []
    counting: set[str] = set()
    constants: dict[str, Any] = {}
    written = {weight for entry in captured.values() for weight in entry.state}
    for name, entry in captured.items():
        # IREE's conversion from torch knows no calls.
        gm, outlined = (without_marks(entry.gm), []) if for_iree else outline_composites(entry.gm, taken)
        gm = copy_graph_module(gm)
        graphs = [(part.symbol, part.gm, "private") for part in outlined]
        for symbol, graph, visibility in (*graphs, (name, gm, None)):
            if for_iree:
                _, counts = make_ready_for_iree(graph, check=check)
                counting |= {name} if counts else set()
            elif not raw:
                _make_portable(graph)
            found.append(traits_of(graph.graph))
            drivers.append(choose_driver(graph.graph, "auto"))
            function = import_graph(importer, graph, symbol, visibility)
        composites += [Composite(part.symbol, part.name, part.attributes) for part in outlined]
        arguments[name] = _place_weights(importer, function, entry, embed, parameters or {}, written, constants)
    driver = "local-sync" if set(drivers) == {"local-sync"} else "local-task"
    return Program(imported_module(importer), arguments, tuple(composites), _joined(found), driver, frozenset(counting))


def _make_portable(gm: GraphModule) -> None:
    """Rewrite a graph for torch-mlir's lowerings, in place."""
    convert_scalar_arguments(gm.graph)
    expand_operators(gm.graph)
    check_arguments(gm, {}, count=False)
    compare_with_tensors(gm.graph)
    rewrite_for_lowering(gm.graph)


def _joined(traits: list[Traits]) -> Traits:
    fields = {field.name for field in dataclasses.fields(Traits)}
    return Traits(**{field: any(getattr(one, field) for one in traits) for field in fields})


def _place_weights(
    importer: Any,
    function: Any,
    entry: Captured,
    embed: bool,
    parameters: Mapping[str, str],
    written: set[str],
    constants: dict[str, Any],
) -> tuple[str, ...]:
    """Make constants or parameters of weights that nothing writes; returns the names of those that stay arguments."""
    left: list[str] = []
    embedded: list[int] = []
    named: dict[int, str] = {}
    for position, (name, value) in enumerate(entry.weights.items()):
        if name in written:
            left.append(name)
        elif name in parameters:
            named[position] = parameters[name]
        elif embed and value.dtype is not torch.uint8:  # of which torch-mlir makes signed constants
            if name not in constants:
                constants[name] = constant_attribute(importer.module.context, value, name)
            embed_constant(function, position, constants[name])
            embedded.append(position)
        else:
            left.append(name)
    for position in reversed(embedded):
        function.entry_block.erase_argument(position)
    retype(function)
    if named:
        load_parameters(importer.module, function, named)
    return tuple(left)
