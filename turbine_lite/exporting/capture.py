"""A module, function or exported program -> one functional ATen graph whose arguments are weights, then inputs."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree
from torch.utils._sympy.numbers import int_oo

from turbine_lite.errors import UnsupportedError
from turbine_lite.graph.decompositions import decompositions_before_partition
from turbine_lite.graph.insertion import call_with_meta, put_first

__all__ = ["Captured", "EntryPoint", "InputSpec", "capture"]

aten = torch.ops.aten

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
# What only checks, which an exported program leaves to whoever calls it.
_CHECKS = (
    "sym_constrain_range",
    "sym_constrain_range_for_size",
    "_assert_scalar",
    "_assert_async",
    "_assert_tensor_metadata",
    "_guards_fn",
)


@dataclasses.dataclass(frozen=True)
class EntryPoint:
    """One function of a program that has several.

    Attributes:
        method: the name of a method of the module, or a function.
        args: example arguments.
        kwargs: example arguments by name.
        dynamic_shapes: as for ``torch.export.export``.
    """

    method: str | Callable[..., Any] = "forward"
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dynamic_shapes: Any = None


@dataclasses.dataclass(frozen=True)
class InputSpec:
    """An input of the user's.

    Attributes:
        name: as torch.export calls it.
        dtype: of a tensor; of a number, ``int64`` or ``float64``.
        shape: sizes, a dynamic one by the name of its symbol; None for a number.
        bounds: from the symbols in ``shape`` to their least and (None: unbounded) greatest value.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int | str, ...] | None
    bounds: Mapping[str, tuple[int, int | None]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Captured:
    """A graph, and what its arguments and results are.

    The arguments are the ``weights`` and then the ``inputs``. The results are new values of the weights and inputs in
    ``writes``, each by its position among the arguments, and then what the program returns.

    Attributes:
        gm: the graph.
        weights: names and values, in the order of the arguments; tied ones once.
        inputs: the user's, flattened. Those that are no tensors and no numbers are in ``in_spec`` alone.
        constants: leaves of the user's arguments that are part of the program, by position among all leaves.
        writes: positions of the arguments that the first results are new values of.
        in_spec: the structure of ``(args, kwargs)``.
        out_spec: the structure of what is returned.
        fixed_results: leaves of what is returned that are no tensors, by position among the leaves.
    """

    gm: GraphModule
    weights: dict[str, torch.Tensor]
    inputs: tuple[InputSpec, ...]
    constants: dict[int, Any]
    writes: tuple[int, ...]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec
    fixed_results: dict[int, Any]

    def flat_inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The tensors and numbers among the arguments of a call.

        Raises:
            TypeError: the arguments have another structure than the examples, or another constant.
        """
        leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        if spec != self.in_spec:
            leaves = pytree.tree_leaves((tuple(args), self._ordered(kwargs)))
            if len(leaves) != self.in_spec.num_leaves:
                raise TypeError(f"arguments of another structure than the examples had: {spec}, not {self.in_spec}")
        for position, value in self.constants.items():
            if leaves[position] != value:
                raise TypeError(f"argument {position} was exported as {value!r}, it cannot be {leaves[position]!r}")
        return [leaf for position, leaf in enumerate(leaves) if position not in self.constants]

    @property
    def write_names(self) -> tuple[str, ...]:
        """Names of the weights and inputs whose new values are the first results."""
        names = [*self.weights, *(spec.name for spec in self.inputs)]
        return tuple(names[position] for position in self.writes)

    @property
    def state(self) -> set[str]:
        """Names of the weights among them."""
        return set(self.write_names) & set(self.weights)

    def result_dtypes(self) -> list[torch.dtype]:
        """Of all results, what is written included."""
        results: Any = self.gm.graph.output_node().args[0]
        return [node.meta["val"].dtype for node in results]

    def _ordered(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        names = self.in_spec.child(1).context if self.in_spec.num_children > 1 else []
        return {name: kwargs[name] for name in names if name in kwargs}

    def unflatten(self, results: Sequence[Any]) -> Any:
        """What the program returns, from its tensors."""
        given = iter(results)
        count = self.out_spec.num_leaves
        leaves = [
            self.fixed_results[position] if position in self.fixed_results else next(given) for position in range(count)
        ]
        return pytree.tree_unflatten(leaves, self.out_spec)


def capture(program: Any, entry: EntryPoint) -> Captured:
    """Capture one entry point.

    Args:
        program: a module, function, TorchScript module, or a ``torch.export.ExportedProgram``, which has its example
            arguments with it.
        entry: what of it, and with which arguments.

    Raises:
        UnsupportedError: it is none of these, or an argument is of a kind that MLIR has no type for.
        Exception: what ``torch.export.export`` raises.
    """
    exported, prefix = _exported(program, entry)
    with _quietly():
        exported = exported.run_decompositions(dict(decompositions_before_partition()))
    signature = exported.graph_signature
    placeholders = list(exported.graph.find_nodes(op="placeholder"))
    gm = GraphModule(dict(exported.graph_module.named_children()), exported.graph)
    weights, kept = _weights(exported, placeholders, prefix)
    inputs, constants = _inputs(exported, placeholders)
    order = [*kept, *(node for node, _ in inputs)]
    writes, fixed = _arrange_results(gm, signature, placeholders, order)
    _arrange_arguments(gm, placeholders, order)
    _erase_checks(gm)
    spec = exported.call_spec
    specs = tuple(found for _, found in inputs)
    assert spec.in_spec is not None
    assert spec.out_spec is not None
    return Captured(gm, weights, specs, constants, writes, spec.in_spec, spec.out_spec, fixed)


def _exported(program: Any, entry: EntryPoint) -> tuple[ExportedProgram, str]:
    """The exported program, and what the names of its weights begin with."""
    if isinstance(program, ExportedProgram):
        return program, ""
    args = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().contiguous(), entry.args)
    kwargs = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().contiguous(), dict(entry.kwargs))
    if isinstance(program, torch.jit.ScriptModule):
        from torch._export.converter import TS2EPConverter

        with _quietly():
            return TS2EPConverter(program, args, kwargs).convert(), ""
    if not callable(program):
        raise UnsupportedError(
            f"cannot export a {type(program).__name__}; possible are modules, functions and exported programs"
        )
    module, prefix = _as_module(program, entry.method)
    with torch.no_grad(), _quietly():
        return torch.export.export(module, args, kwargs, dynamic_shapes=entry.dynamic_shapes, strict=False), prefix


def _as_module(program: Any, method: str | Callable[..., Any]) -> tuple[torch.nn.Module, str]:
    if isinstance(program, torch.nn.Module) and method == "forward":
        return program, ""
    if isinstance(method, str):
        if not hasattr(program, method) and method != "forward":
            raise UnsupportedError(f"{type(program).__name__} has no method {method!r}")
        function = program if method == "forward" else getattr(program, method)
    else:
        function = method
    module = torch.nn.Module()
    module.forward = function if _has_signature(function) else lambda *args, **kwargs: function(*args, **kwargs)
    if not isinstance(program, torch.nn.Module):
        return module, ""
    module.program = program
    return module, "program."


def _has_signature(function: Any) -> bool:
    try:
        inspect.signature(function)
    except ValueError:  # of a builtin, such as torch.sin
        return False
    return True


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Warnings of torch.export's own about itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _weights(
    exported: ExportedProgram, placeholders: list[Node], prefix: str
) -> tuple[dict[str, torch.Tensor], list[Node]]:
    """Names and values, and the placeholders; those of tied weights are replaced by the first of them."""
    values: dict[str, torch.Tensor] = {}
    kept: dict[tuple[Any, ...], Node] = {}
    for spec, node in zip(exported.graph_signature.input_specs, placeholders, strict=True):
        if spec.kind not in _WEIGHTS:
            continue
        name = str(spec.target)
        value = exported.state_dict.get(name, exported.constants.get(name))
        if not isinstance(value, torch.Tensor):
            raise UnsupportedError(f"the program's constant {name} is a {type(value).__name__}, no tensor")
        value = value.detach()
        key = (value.data_ptr() or node.name, value.dtype, tuple(value.shape), value.stride())
        if key in kept:
            node.replace_all_uses_with(kept[key])
            continue
        kept[key] = node
        values[name.removeprefix(prefix)] = value
    return values, list(kept.values())


def _inputs(exported: ExportedProgram, placeholders: list[Node]) -> tuple[list[tuple[Node, InputSpec]], dict[int, Any]]:
    found: list[tuple[Node, InputSpec]] = []
    constants: dict[int, Any] = {}
    position = 0
    for spec, node in zip(exported.graph_signature.input_specs, placeholders, strict=True):
        if spec.kind in _WEIGHTS:
            continue
        if spec.kind is not InputKind.USER_INPUT:
            raise UnsupportedError(f"input {node.name} is a {spec.kind.name.lower()}, which MLIR has no type for")
        if isinstance(spec.arg, ConstantArgument):
            constants[position] = spec.arg.value
        else:
            found.append((node, _input_spec(exported, spec.arg.name, node)))
        position += 1
    return found, constants


def _input_spec(exported: ExportedProgram, name: str, node: Node) -> InputSpec:
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        return InputSpec(name, torch.float64 if isinstance(value, (float, torch.SymFloat)) else torch.int64, None)
    bounds: dict[str, tuple[int, int | None]] = {}
    sizes: tuple[Any, ...] = tuple(value.shape)
    for size in sizes:
        if isinstance(size, torch.SymInt):
            limits = exported.range_constraints.get(size.node.expr)
            least = 0 if limits is None else int(limits.lower)
            most = None if limits is None or limits.upper in (int_oo, None) else _finite(limits.upper)
            bounds[str(size)] = (least, most)
    shape = tuple(size if isinstance(size, int) else str(size) for size in sizes)
    return InputSpec(name, value.dtype, shape, bounds)


def _finite(upper: Any) -> int | None:
    try:
        number = int(upper)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number < 1 << 31 else None


def _arrange_results(
    gm: GraphModule, signature: Any, placeholders: list[Node], order: list[Node]
) -> tuple[tuple[int, ...], dict[int, Any]]:
    """Leave new values and tensors among the results, dense and row-major."""
    output = gm.graph.output_node()
    by_name = {str(spec.target): node for spec, node in zip(signature.input_specs, placeholders, strict=True)}
    by_name |= {node.name: node for node in placeholders}
    writes: list[int] = []
    results: list[Any] = []
    fixed: dict[int, Any] = {}
    position = 0
    returned: Any = output.args[0]
    for spec, node in zip(signature.output_specs, returned, strict=True):
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            writes.append(order.index(by_name[str(spec.target)]))
            results.append(node)
            continue
        if isinstance(spec.arg, TensorArgument):
            results.append(node)
        elif isinstance(node, Node):
            raise UnsupportedError(f"result {position} is a number that the program computes ({node.name})")
        else:
            fixed[position] = node
        position += 1
    output.args = (tuple(_dense(gm, node) for node in results),)
    return tuple(writes), fixed


def _dense(gm: GraphModule, node: Node) -> Node:
    value = node.meta["val"]
    if value.is_contiguous():
        return node
    output = gm.graph.output_node()
    with gm.graph.inserting_before(output):
        return call_with_meta(gm.graph, aten.clone.default, (node,), node, memory_format=torch.contiguous_format)


def _arrange_arguments(gm: GraphModule, placeholders: list[Node], order: list[Node]) -> None:
    for node in placeholders:
        if node not in order:
            if node.users:
                raise UnsupportedError(f"input {node.name} is used, and is no tensor or number")
            gm.graph.erase_node(node)
    put_first(gm.graph, order)
    for node in order:
        value = node.meta["val"]
        if isinstance(value, torch.Tensor) and not value.is_contiguous():
            # MLIR's tensors have no strides; whoever gives the values makes them dense.
            node.meta = {**node.meta, "val": value.contiguous()}
            node.meta.pop("tensor_meta", None)


def _erase_checks(gm: GraphModule) -> None:
    for node in reversed(list(gm.graph.nodes)):
        name = str(getattr(node.target, "_opname", node.target)).rpartition("::")[2]
        if name in _CHECKS or (node.op == "call_module" and not node.users):
            gm.graph.erase_node(node)
    gm.graph.eliminate_dead_code()
