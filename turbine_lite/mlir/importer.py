"""A region's FX graph -> one function in the torch dialect, through torch-mlir's FxImporter.

The function takes the region's arguments, then one mutable tensor for each result, and writes the results there
("destination passing"): the caller allocates results, so they are ordinary torch memory, no two share any, and none
shares memory with an argument. Arguments that are parameters become constants of the module that it is loaded with.

It returns its other tensor arguments. Nobody reads those; returning them is what tells
IREE that they must still hold their values at the end: otherwise it writes into an argument's memory where that
saves a copy (seen with index_put, scatter, slice_scatter, sort, addmm).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import re
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule, Node
from torch_mlir import ir
from torch_mlir.dialects import func as func_dialect
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.extras import fx_importer

from turbine_lite.errors import CompilationError
from turbine_lite.graph.expand import is_expanded
from turbine_lite.graph.insertion import origin_of
from turbine_lite.graph.rewrites import is_rewritten
from turbine_lite.graph.source import source_frame
from turbine_lite.graph.support import Reason, reason_for
from turbine_lite.mlir.entry_point import CALL, ENTRY_POINT, PARAMETER_SCOPE, parameter_name
from turbine_lite.mlir.locations import NODE_FILE_PREFIX

__all__ = [
    "ImportedModule",
    "constant_attribute",
    "embed_constant",
    "import_graph",
    "import_region",
    "imported_module",
    "load_parameters",
    "new_importer",
    "retype",
    "why_not_importable",
]


# Constants of more elements are resources: bytes beside the program instead of text in it.
_LARGEST_INLINE = 16


@dataclasses.dataclass(frozen=True)
class ImportedModule:
    """A module in the torch dialect. ``bytecode`` is complete; ``text`` is for reading, with locations."""

    bytecode: bytes
    operation: Any

    def text(self, *, elide_constants: bool = True) -> str:
        """The module as MLIR text."""
        limit = 16 if elide_constants else None
        return str(
            self.operation.get_asm(enable_debug_info=True, large_elements_limit=limit, large_resource_limit=limit)
        )

    def fingerprint(self, *, locations: bool = False) -> str:
        """A hash of the module; without its locations (nodes, lines), of all of it that has an effect."""
        text = self.operation.get_asm(enable_debug_info=locations)
        return hashlib.sha256(text.encode()).hexdigest()

    def calling_convention(self) -> str:
        """Name and type of the entry point."""
        functions = [op for op in self.operation.regions[0].blocks[0].operations if "function_type" in op.attributes]
        return "; ".join(f"{op.attributes['sym_name']} {op.attributes['function_type']}" for op in functions)


def import_region(gm: GraphModule, parameters: Collection[int] = ()) -> ImportedModule:
    """Import a region. The graph module is changed on the way (torch-mlir canonicalises nodes in place).

    ``parameters`` are the positions of arguments that the module is loaded with.

    Raises:
        CompilationError: a node could not be imported; ``reasons`` names it.
    """
    importer = new_importer()
    function = import_graph(importer, gm, ENTRY_POINT)
    _pass_destinations(function, parameters)
    if parameters:
        load_parameters(importer.module, function, {position: parameter_name(position) for position in parameters})
    return imported_module(importer)


def new_importer() -> Any:
    """An importer with a module of its own, in a context of its own."""
    context = ir.Context()
    torch_dialect.register_dialect(context)
    importer = fx_importer.FxImporter(context=context, graph_node_importer_cls=_NodeImporter)
    importer._cc = _LocatedContextCache(context, py_attr_tracker=importer._py_attr_tracker)
    return importer


def import_graph(importer: Any, gm: GraphModule, name: str, visibility: str | None = None) -> Any:
    """Import a graph as a function of the importer's module, and return the function's operation.

    The graph module is changed on the way.

    Raises:
        CompilationError: a node could not be imported; ``reasons`` names it.
    """
    try:
        with unset_fake_temporarily():  # literals are real tensors
            function = importer.import_stateless_graph(gm.graph, func_name=name, func_visibility=visibility)
    except _NodeImportError as error:
        reason = reason_for(error.node, "not-importable", f"torch-mlir's importer: {error.__cause__}")
        raise CompilationError(f"cannot import {reason}", stage="import", reasons=(reason,)) from error
    except Exception as error:  # the importer raises whatever its internals do; all of it means the same
        raise CompilationError(f"torch-mlir's importer failed: {error}", stage="import") from error
    # FX graphs have no implicit broadcasting of a dynamic size 1.
    function.attributes["torch.assume_strict_symbolic_shapes"] = ir.UnitAttr.get(importer.module.context)
    if visibility == "private":  # else torch-mlir's pipelines inline it
        function.attributes["no_inline"] = ir.UnitAttr.get(importer.module.context)
    return function


def imported_module(importer: Any) -> ImportedModule:
    """What the importer has imported."""
    buffer = io.BytesIO()
    importer.module.operation.write_bytecode(buffer)
    return ImportedModule(buffer.getvalue(), importer.module.operation)


def why_not_importable(node: Node) -> Reason | None:
    """The reason why torch-mlir's importer would not know an operator, or None."""
    target = node.target
    replaced = is_expanded(node) or is_rewritten(target)
    if isinstance(target, OpOverload) and not replaced and not _is_known(target):
        return reason_for(node, "not-importable", "torch-mlir has no such operator")
    return None


@functools.cache
def _is_known(target: OpOverload) -> bool:
    if target in fx_importer.NODE_CANONICALIZE:
        return True
    return bool(_registry().is_registered_operation(fx_importer._get_mlir_op_name_for_schema(target._schema)))


@functools.cache
def _registry() -> Any:
    context = ir.Context()
    torch_dialect.register_dialect(context)
    return context


class _NodeImportError(Exception):
    def __init__(self, node: Node) -> None:
        super().__init__(node.name)
        self.node = node


class _NodeImporter(fx_importer.GraphNodeImporter):  # type: ignore[misc]  # torch-mlir is untyped
    """Names the node at which an import fails, and makes literals that keep their values."""

    def _import_argument(self, loc: Any, arg: Any, expected_jit_type: Any = None) -> Any:
        # The base class makes a constant again for each of its users, and stumbles over the second.
        if isinstance(arg, Node) and arg.op == "get_attr":
            if (arg, 0) not in self._v:
                with loc:
                    self.bind_node_value(arg, self._import_literal(getattr(arg.graph.owning_module, str(arg.target))))
            return self._convert_type(self.resolve_node_value(arg), expected_jit_type)
        return super()._import_argument(loc, arg, expected_jit_type)

    def _import_literal(self, py_value: Any, info: Any = None) -> Any:
        # The base class tells tensors apart by their addresses, and a boolean one by that of a copy which is gone by
        # the time of the next: constants then get each other's values.
        if isinstance(py_value, torch.Tensor):
            return _literal(py_value, self._cc.tensor_to_vtensor_type(py_value))
        return super()._import_literal(py_value, info)

    def _import_torch_op_overload(self, loc: Any, node: Node, concrete_target: OpOverload | None = None) -> None:
        if str(node.target) == CALL:
            self._import_call(loc, node)
            return
        try:
            super()._import_torch_op_overload(loc, node, concrete_target)
        except Exception as error:  # see import_region
            raise _NodeImportError(node) from error

    def _import_call(self, loc: Any, node: Node) -> None:
        """A call of another function of the module: ``(operands, symbol) -> results``."""
        operands: Any = node.args[0]
        with loc:
            results = [self._cc.value_info_to_type(value) for value in node.meta["val"]]
            attributes = {"callee": ir.FlatSymbolRefAttr.get(str(node.args[1]))}
            values = [self._import_argument(loc, operand) for operand in operands]
            call = ir.Operation.create("func.call", results=results, operands=values, attributes=attributes)
        self._multi_result_nodes.add(node)
        for index, result in enumerate(call.results):
            self.bind_node_value(node, result, index)


class _LocatedContextCache(fx_importer.ContextCache):  # type: ignore[misc]  # torch-mlir is untyped
    """Puts the FX node's name into the location of its operations, see NODE_FILE_PREFIX."""

    def get_node_location(self, node: Node) -> Any:
        here = ir.Location.file(NODE_FILE_PREFIX + origin_of(node), 0, 0, context=self._c)
        frame = source_frame(node)
        if frame is None:
            return here
        user = ir.Location.file(frame.file, frame.line, 0, context=self._c)
        return ir.Location.callsite(here, [user], context=self._c)


def _literal(tensor: torch.Tensor, vtensor_type: Any) -> Any:
    """A constant of the program; for small tensors."""
    attribute = _dense_attribute(tensor.detach().contiguous())
    return ir.Operation.create("torch.vtensor.literal", [vtensor_type], attributes={"value": attribute}).result


def _dense_attribute(data: torch.Tensor) -> Any:
    element = _element_type(data.dtype)
    shape = list(data.shape)
    if data.dtype is torch.bfloat16:  # which numpy does not know
        text = data.view(torch.int16).numpy().tobytes().hex().upper()
        return ir.Attribute.parse(f'dense<"0x{text}"> : {ir.RankedTensorType.get(shape, element)}')
    return ir.DenseElementsAttr.get(data.numpy(), type=element, shape=shape)


def _element_type(dtype: torch.dtype) -> Any:
    return ir.IntegerType.get_unsigned(8) if dtype is torch.uint8 else fx_importer.TORCH_DTYPE_TO_MLIR_TYPE[dtype]()


def _pass_destinations(function: Any, parameters: Collection[int]) -> None:
    """Turn results into mutable arguments and return the tensor arguments instead, see the module's docstring."""
    block = function.entry_block
    arguments = list(block.arguments)
    terminator = block.operations[len(block.operations) - 1]
    results = list(terminator.operands)
    kept = [a for i, a in enumerate(arguments) if "vtensor" in str(a.type) and i not in parameters]
    with terminator.location, ir.InsertionPoint(terminator):
        destinations = []
        for result in results:
            mutable = ir.Type.parse(str(result.type).replace("!torch.vtensor", "!torch.tensor"))
            destinations.append(block.add_argument(mutable, terminator.location))
            ir.Operation.create("torch.overwrite.tensor.contents", operands=[result, destinations[-1]])
        func_dialect.ReturnOp(kept)
        terminator.operation.erase()
        retype(function, [argument.type for argument in kept])


def load_parameters(module: Any, function: Any, names: Mapping[int, str]) -> None:
    """Make globals of the arguments at these positions, whose values the runtime is given when it loads the program.

    Functions of a module that have the same parameter share the global. The operations belong to dialects of IREE's
    that torch-mlir does not know; it writes them as it is told.
    """
    context = module.context
    context.allow_unregistered_dialects = True
    block = function.entry_block
    there = {str(op.attributes["sym_name"]).strip('"') for op in module.body.operations if op.name == "util.global"}
    with ir.Location.unknown(context):
        for position, name in sorted(names.items(), reverse=True):
            argument = block.arguments[position]
            builtin = _builtin_type(argument.type)
            if name not in there:
                _add_global(module, name, builtin)
            with ir.InsertionPoint.at_block_begin(block):
                symbol = {"global": ir.FlatSymbolRefAttr.get(name)}
                load = ir.Operation.create("util.global.load", results=[builtin], attributes=symbol)
                value = ir.Operation.create("torch_c.from_builtin_tensor", [argument.type], [load.result])
                argument.replace_all_uses_with(value.result)
            block.erase_argument(position)
        retype(function)


def _add_global(module: Any, name: str, builtin: Any) -> None:
    with ir.InsertionPoint.at_block_begin(module.body):
        value = f'#flow.parameter.named<"{PARAMETER_SCOPE}"::"{name}"> : {builtin}'
        attributes = {
            "sym_name": ir.StringAttr.get(name),
            "sym_visibility": ir.StringAttr.get("private"),
            "type": ir.TypeAttr.get(builtin),
            "initial_value": ir.Attribute.parse(value),
        }
        ir.Operation.create("util.global", attributes=attributes)


def embed_constant(function: Any, position: int, attribute: Any) -> None:
    """Put a constant in the place of an argument, which stays; see :func:`constant_attribute`."""
    argument = function.entry_block.arguments[position]
    with ir.Location.unknown(function.context), ir.InsertionPoint.at_block_begin(function.entry_block):
        made = ir.Operation.create("torch.vtensor.literal", [argument.type], attributes={"value": attribute})
    argument.replace_all_uses_with(made.result)


def constant_attribute(context: Any, tensor: torch.Tensor, name: str) -> Any:
    """The values of a tensor; large ones as a resource, which constants of the same attribute share."""
    data = tensor.detach().contiguous()
    with ir.Location.unknown(context):
        # IREE converts constants of bfloat16, and does not look at resources then.
        if data.numel() <= _LARGEST_INLINE or data.dtype in (torch.bool, torch.bfloat16):
            return _dense_attribute(data)
        type_ = ir.RankedTensorType.get(list(data.shape), _element_type(data.dtype))
        return ir.DenseResourceElementsAttr.get_from_buffer(data.numpy(), name, type_)


def retype(function: Any, results: list[Any] | None = None) -> None:
    """Give a function the type that its arguments have now; ``results``: those of its results, if these are others."""
    with function.context:
        inputs = [argument.type for argument in function.entry_block.arguments]
        function_type = ir.FunctionType.get(inputs, function.type.results if results is None else results)
        function.attributes["function_type"] = ir.TypeAttr.get(function_type)


def _builtin_type(vtensor: Any) -> Any:
    """``!torch.vtensor<[4,8],si64>`` -> ``tensor<4x8xi64>``."""
    dims, element = re.fullmatch(r"!torch\.vtensor<\[([\d,]*)\],(\w+)>", str(vtensor)).groups()  # type: ignore[union-attr]
    sizes = "".join(f"{size}x" for size in dims.split(",") if size)
    return ir.Type.parse(f"tensor<{sizes}{re.sub('^[su]i', 'i', element)}>")
