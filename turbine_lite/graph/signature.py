"""How a region is called: its arguments and results as memory.

IREE takes and gives dense row-major buffers. A tensor whose strides are those of a permuted dense tensor (a
channels-last image, a transposed weight) crosses as that dense tensor, with a ``permute`` on the graph's side that
the compiler fuses into its neighbours: no copy is made and the caller sees eager's strides.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Container, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils._sympy.printers import PythonPrinter

from turbine_lite.errors import UnsupportedError
from turbine_lite.graph.insertion import call_with_meta
from turbine_lite.graph.sizes import is_static

__all__ = [
    "ScalarInput",
    "Shapes",
    "Signature",
    "TensorInput",
    "TensorOutput",
    "dense_order",
    "inverse",
    "specialize_signature",
]

# Sizes and strides of each result.
Shapes = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


@dataclasses.dataclass(frozen=True)
class TensorInput:
    """A tensor argument.

    ``order`` permutes it to a dense row-major one; None if it is one already. ``static``: its sizes never change.
    ``negated``: its memory holds the negated values (torch's negative bit). ``parameter``: the program is loaded with
    its values, see ``graph/parameters.py``.
    """

    dtype: torch.dtype
    order: tuple[int, ...] | None
    static: bool
    negated: bool
    parameter: bool = False


@dataclasses.dataclass(frozen=True)
class ScalarInput:
    """A Python number argument, ``int`` or ``float``."""

    type: type


@dataclasses.dataclass(frozen=True)
class TensorOutput:
    """A tensor result. ``order`` permutes it to a dense row-major one; None if it is one already."""

    dtype: torch.dtype
    order: tuple[int, ...] | None


@dataclasses.dataclass(frozen=True)
class Signature:
    """Arguments and results of a region.

    ``counts_errors``: the last result is an int64 number that is for nobody else: of bad indices and divisors, see
    ``graph/bounds.py``.
    ``shapes`` holds sizes and strides of the results if they are static, else None; then ``shapes_of`` computes them
    from the arguments.
    """

    inputs: tuple[TensorInput | ScalarInput, ...]
    outputs: tuple[TensorOutput, ...]
    shapes: Shapes | None
    shapes_source: str
    counts_errors: bool = False

    @property
    def parameters(self) -> tuple[int, ...]:
        """Positions of the arguments that are parameters."""
        return tuple(i for i, spec in enumerate(self.inputs) if isinstance(spec, TensorInput) and spec.parameter)

    def with_parameters(self, positions: Container[int]) -> Signature:
        """The signature with the tensor arguments at these positions as parameters."""
        inputs = tuple(
            dataclasses.replace(spec, parameter=True) if index in positions and isinstance(spec, TensorInput) else spec
            for index, spec in enumerate(self.inputs)
        )
        return dataclasses.replace(self, inputs=inputs)

    def with_count(self) -> Signature:
        """The signature with the count of what eager raises an error for as one more result."""
        return dataclasses.replace(
            self,
            outputs=(*self.outputs, TensorOutput(torch.int64, None)),
            shapes=None if self.shapes is None else (*self.shapes, ((), ())),
            shapes_source=f"lambda args: (*({self.shapes_source})(args), ((), ()))",
            counts_errors=True,
        )

    def shapes_of(self) -> Callable[[Sequence[Any]], Shapes]:
        """A function from the list of arguments to the sizes and strides of the results."""
        function: Callable[[Sequence[Any]], Shapes] = eval(self.shapes_source, {"math": math, "torch": torch})
        return function


def specialize_signature(graph: Graph) -> Signature:
    """Give a region's graph dense arguments and results (in place), and say how to call it."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    output = graph.output_node()
    results = list(output.args[0])  # type: ignore[arg-type]
    values = [node.meta["val"] for node in results]
    source = _shapes_source(placeholders, values)
    static = all(isinstance(n, int) for value in values for n in (*value.shape, *value.stride()))
    inputs = tuple(_dense_input(graph, node) for node in placeholders)
    outputs = tuple(_dense_output(graph, results, index, output) for index in range(len(results)))
    output.args = (tuple(results),)
    shapes = tuple((tuple(v.shape), v.stride()) for v in values) if static else None
    return Signature(inputs, outputs, shapes, source)


def dense_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The permutation after which the tensor is dense and row-major; None if that is the identity or there is none."""
    moving = _dims_in_memory(tensor)
    if moving is None or moving == sorted(moving):
        return None
    # Dimensions of size 1 have arbitrary strides.
    return (*moving, *(dim for dim in range(tensor.dim()) if dim not in moving))


def _dims_in_memory(tensor: torch.Tensor) -> list[int] | None:
    """The dimensions of more than one element, the slowest first; None if the tensor has gaps or overlaps."""
    sizes, strides = [_hint(n) for n in tensor.shape], [_hint(n) for n in tensor.stride()]
    if 0 in sizes:
        return []
    moving = sorted((d for d in range(len(sizes)) if sizes[d] != 1), key=lambda d: (-strides[d], d))
    expected = 1
    for dim in reversed(moving):
        if strides[dim] != expected:
            return None
        expected *= sizes[dim]
    return moving


def _hint(number: int | torch.SymInt) -> int:
    if isinstance(number, torch.SymInt):
        hint = number.node.hint
        return 2 if hint is None else int(hint)
    return int(number)


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes ``order``."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def _dense_input(graph: Graph, node: Node) -> TensorInput | ScalarInput:
    value = node.meta["val"]
    if isinstance(value, (int, torch.SymInt)):
        return ScalarInput(int)
    if isinstance(value, (float, torch.SymFloat)):
        return ScalarInput(float)
    if not isinstance(value, torch.Tensor):
        raise UnsupportedError(f"argument {node.name} of a compiled region is a {type(value).__name__}, not a tensor")
    order = dense_order(value)
    if order is not None:
        users = list(node.users)
        dense = value.permute(order)
        with graph.inserting_after(node):
            node.meta = {**node.meta, "val": dense}
            node.meta.pop("tensor_meta", None)
            logical = call_with_meta(graph, torch.ops.aten.permute.default, (node, list(inverse(order))), node)
        for user in users:
            user.replace_input_with(node, logical)
    return TensorInput(value.dtype, order, is_static(value.shape), value.is_neg())


def _dense_output(graph: Graph, results: list[Node], index: int, output: Node) -> TensorOutput:
    node = results[index]
    value = node.meta["val"]
    order = dense_order(value)
    if _dims_in_memory(value) is None:
        raise UnsupportedError(
            f"result {node.name} of a compiled region has gaps or overlaps: strides {value.stride()}"
        )
    if order is not None:
        with graph.inserting_before(output):
            results[index] = call_with_meta(graph, torch.ops.aten.permute.default, (node, list(order)), node)
    return TensorOutput(value.dtype, order)


def _shapes_source(placeholders: list[Node], values: list[torch.Tensor]) -> str:
    """Python source of a function from the arguments to the results' sizes and strides."""
    known = _where_symbols_are(placeholders)

    def text(number: int | torch.SymInt) -> str:
        if not isinstance(number, torch.SymInt):
            return str(int(number))
        expr = number.node.expr
        missing = [str(s) for s in expr.free_symbols if s not in known]
        if missing:
            raise UnsupportedError(f"a result's size {expr} depends on {', '.join(missing)}, which no argument tells")
        return str(_Printer(known).doprint(expr))

    def sequence(numbers: Sequence[int | torch.SymInt]) -> str:
        return f"({''.join(text(n) + ', ' for n in numbers)})"

    body = "".join(f"({sequence(v.shape)}, {sequence(v.stride())}), " for v in values)
    return f"lambda args: ({body})"


class _Printer(PythonPrinter):
    def __init__(self, known: dict[Any, str]) -> None:
        super().__init__()
        self._known = known

    def _print_Symbol(self, expr: Any) -> str:  # noqa: N802  # sympy's naming
        return self._known[expr]


def _where_symbols_are(placeholders: list[Node]) -> dict[Any, str]:
    """From a shape symbol to the expression that reads it from ``args``."""
    known: dict[Any, str] = {}
    for index, node in enumerate(placeholders):
        value = node.meta["val"]
        if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            known.setdefault(value.node.expr, f"args[{index}]")
    for index, node in enumerate(placeholders):
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            sizes: tuple[object, ...] = tuple(value.shape)
            for dim, size in enumerate(sizes):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    known.setdefault(size.node.expr, f"args[{index}].shape[{dim}]")
    return known
