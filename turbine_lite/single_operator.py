"""``import_node``: one operator of PyTorch's as MLIR, to read it or to put it into a module of one's own."""

from __future__ import annotations

import contextlib
import functools
import importlib
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from turbine_lite.compiler.dialects import DIALECTS, IREE_DIALECTS, lower_to
from turbine_lite.compiler.lowering import load_stablehlo
from turbine_lite.errors import OptionError, UnsupportedError
from turbine_lite.exporting.capture import Captured
from turbine_lite.exporting.program import Program, build_program
from turbine_lite.graph.decompositions import decompositions_before_partition
from turbine_lite.options import Options

__all__ = ["ImportedNode", "import_node"]

_NAME = "main"


def import_node(
    target: Node | OpOverload | OpOverloadPacket,
    *args: Any,
    dialect: str = "linalg-on-tensors",
    kwargs: Mapping[str, Any] | None = None,
    options: dict[str, Any] | None = None,
) -> ImportedNode:
    """Import one operator.

    Args:
        target: a ``call_function`` node of an FX graph; or an operator, such as ``torch.ops.aten.addmm.default`` (of a
            packet, the overload is the one that fits).
        args: for an operator, its arguments; tensors say shapes and dtypes, their values do not matter. Of a node, the
            metadata say all of that: ``val``, else ``tensor_meta``, ``example_value`` or what they can be computed
            from.
        dialect: what of :func:`turbine_lite.export` is MLIR.
        kwargs: for an operator, arguments by name.
        options: fields of :class:`turbine_lite.Options`.

    Returns:
        A module with one function, whose ``str`` is its text.

    Raises:
        OptionError: an unknown dialect.
        UnsupportedError: the node is no call of an operator, its metadata do not suffice, or it returns no tensor.
        CompilationError: torch-mlir cannot import or lower it.
        Exception: what the operator itself raises for such arguments.
    """
    dialects = [name for name in DIALECTS if name != "vmfb"]
    if dialect not in dialects:
        raise OptionError(f"unknown dialect {dialect!r}; known: {', '.join(dialects)}")
    if isinstance(target, Node):
        if args or kwargs:
            raise OptionError("a node has its arguments already")
        gm = _graph_of_node(target)
    elif isinstance(target, (OpOverload, OpOverloadPacket)):
        gm = _graph_of_operator(target, args, dict(kwargs or {}))
    else:
        raise UnsupportedError(f"cannot import a {type(target).__name__}; possible are FX nodes and operators")
    is_raw = dialect == "torch"
    if not is_raw:
        gm = _decomposed(gm)
    spec = pytree.tree_structure(())
    captured = {_NAME: Captured(gm, {}, (), {}, (), spec, spec, {})}
    program = build_program(captured, for_iree=dialect in IREE_DIALECTS, raw=is_raw)
    return ImportedNode(program, dialect, Options.resolve(options, None))


class ImportedNode:
    """An operator as an MLIR module with the function ``main``.

    Attributes:
        dialect: what it is in.
    """

    def __init__(self, program: Program, dialect: str, options: Options) -> None:
        self.dialect = dialect
        self._program = program
        self._options = options
        self._text = self._lowered(as_text=True).decode()

    def __str__(self) -> str:
        """The module as text."""
        return self._text

    def bytecode(self) -> bytes:
        """The module as bytecode."""
        return self._lowered(as_text=False)

    def _lowered(self, *, as_text: bool) -> bytes:
        program = self._program
        return lower_to(program.module.bytecode, self.dialect, self._options, program.traits, as_text=as_text)

    def inline_into(self, insertion_point: Any, operands: Sequence[Any]) -> list[Any]:
        """Clone the function's body into another module.

        Args:
            insertion_point: where, an ``InsertionPoint`` of torch-mlir's, IREE's or JAX's Python bindings.
            operands: values that stand for the function's arguments, of the same types.

        Returns:
            The values of the function's results there.

        Raises:
            UnsupportedError: the operands do not fit, or the operator needs more than one function (IREE's dialects).
        """
        package = type(insertion_point).__module__.partition("._mlir_libs")[0]
        ir: Any = importlib.import_module(f"{package}.ir")
        context = insertion_point.block.owner.context
        with context:
            if self.dialect == "stablehlo" and package == "torch_mlir":
                load_stablehlo(ir, importlib.import_module("torch_mlir.passmanager").PassManager)
            module = ir.Module.parse(self._text)
            functions = list(module.body.operations)
            if len(functions) != 1 or functions[0].operation.name != "func.func":
                raise UnsupportedError(
                    f"{self.dialect} has more of this than one function; inline it in another dialect"
                )
            return _clone_body(ir, functions[0].operation.regions[0].blocks[0], insertion_point, operands)


def _clone_body(ir: Any, body: Any, insertion_point: Any, operands: Sequence[Any]) -> list[Any]:
    arguments = list(body.arguments)
    wanted, given = [str(one.type) for one in arguments], [str(one.type) for one in operands]
    if wanted != given:
        raise UnsupportedError(f"the operator takes ({', '.join(wanted)}), not ({', '.join(given)})")
    values = dict(zip(arguments, operands, strict=True))
    *operations, terminator = body.operations
    for operation in operations:
        made = operation.operation.clone(insertion_point)
        _replace_operands(ir, made, values)
        values |= dict(zip(operation.operation.results, made.results, strict=True))
    return [values[operand] for operand in terminator.operation.operands]


def _replace_operands(ir: Any, made: Any, values: Mapping[Any, Any]) -> None:
    """Also within its regions: what these read of outside is still the original's."""

    def visit(operation: Any) -> Any:
        for index, operand in enumerate(operation.operands):
            if operand in values:
                operation.operands[index] = values[operand]
        return ir.WalkResult.ADVANCE

    made.operation.walk(visit)


def _decomposed(gm: GraphModule) -> GraphModule:
    """The graph of smaller operators, where there is no lowering of the whole; as AOTAutograd makes it."""
    (call,) = [node for node in gm.graph.nodes if isinstance(node.target, OpOverload)]
    if call.target not in decompositions_before_partition():
        return gm
    values = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    mode = detect_fake_mode(values) or contextlib.nullcontext()  # of what the decomposition creates, too
    with torch.no_grad(), mode:
        return make_fx(gm, decomposition_table=dict(decompositions_before_partition()))(*values)


def _graph_of_operator(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> GraphModule:
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    mode = detect_fake_mode(tensors) or FakeTensorMode(allow_non_fake_inputs=True)
    graph = Graph()

    def enter(tensor: torch.Tensor) -> Node:
        placeholder = graph.placeholder(f"input_{len(graph.nodes)}")
        placeholder.meta["val"] = (
            tensor if isinstance(tensor, FakeTensor) else mode.from_tensor(tensor, static_shapes=True)
        )
        return placeholder

    args, kwargs = pytree.tree_map_only(torch.Tensor, enter, (args, kwargs))
    if isinstance(target, OpOverloadPacket):
        target = _fitting_overload(target, args, kwargs)
    return _finished(graph, target, args, kwargs, mode)


def _fitting_overload(packet: Any, args: Any, kwargs: Any) -> OpOverload:
    """The overload that a call of the packet runs."""
    values, named = torch.fx.map_arg((args, kwargs), lambda node: node.meta["val"])
    name = torch._C._jit_resolve_packet(packet._qualified_op_name, *values, **named)
    overload: OpOverload = getattr(packet, name or "default")
    return overload


def _graph_of_node(node: Node) -> GraphModule:
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        raise UnsupportedError(f"{node.name} is a {node.op} of {node.target}; only calls of operators can be imported")
    known = [value for one in node.all_input_nodes for value in pytree.tree_leaves(_raw_value(one))]
    mode = detect_fake_mode(known) or FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    graph = Graph()
    values: dict[Node, Node] = {}
    for read in node.all_input_nodes:
        values[read] = graph.placeholder(read.name)
        values[read].meta["val"] = _value_of(read, mode)
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
    gm = _finished(graph, node.target, args, kwargs, mode)
    for made in gm.graph.nodes:
        if made.op == "call_function" and "stack_trace" in node.meta:
            made.meta["stack_trace"] = node.meta["stack_trace"]
    return gm


def _raw_value(node: Node) -> Any:
    if node.op == "get_attr" and node.graph.owning_module is not None and "val" not in node.meta:
        return functools.reduce(getattr, str(node.target).split("."), node.graph.owning_module)
    return node.meta.get("val", node.meta.get("example_value"))


def _value_of(node: Node, mode: FakeTensorMode) -> Any:
    value = _raw_value(node)
    if value is None and "tensor_meta" in node.meta:
        found = node.meta["tensor_meta"]
        with mode:
            return torch.empty_strided(tuple(found.shape), tuple(found.stride), dtype=found.dtype)
    if isinstance(value, torch.Tensor):
        return value if isinstance(value, FakeTensor) else mode.from_tensor(value.detach(), static_shapes=True)
    if isinstance(value, (torch.SymInt, torch.SymFloat, int, float)) and not isinstance(value, bool):
        return value
    raise UnsupportedError(
        f"nothing is known of {node.name}: neither val nor tensor_meta; run FakeTensorProp on the graph"
    )


def _finished(graph: Graph, target: OpOverload, args: Any, kwargs: Any, mode: FakeTensorMode) -> GraphModule:
    call = graph.call_function(target, args, kwargs)
    values, named = torch.fx.map_arg((args, kwargs), lambda node: node.meta["val"])
    try:
        with mode, torch.no_grad():
            call.meta["val"] = target(*values, **named)
    except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException) as error:
        raise UnsupportedError(
            f"what {target} returns cannot be known from shapes and dtypes alone: {error}"
        ) from error
    results: list[Node] = []
    if isinstance(call.meta["val"], torch.Tensor):
        results.append(call)
    elif isinstance(call.meta["val"], (list, tuple)):
        for index, value in enumerate(call.meta["val"]):
            if isinstance(value, torch.Tensor):
                item = graph.call_function(operator.getitem, (call, index))
                item.meta["val"] = value
                results.append(item)
    if not results:
        raise UnsupportedError(f"{target} returns no tensor, which is what MLIR's tensor dialects compute")
    graph.output(tuple(results))
    return GraphModule({}, graph)
