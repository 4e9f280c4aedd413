"""Functions that stay recognisable in exported programs: ``stablehlo.composite``.

While a program is exported, tensors that go into such a function and come out of it pass through marking operators;
what is between becomes a function of its own (:func:`outline_composites`). At all other times nothing is marked.
"""

from __future__ import annotations

import functools
import itertools
import json
import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from turbine_lite.errors import OptionError
from turbine_lite.graph.insertion import copy_graph_module, put_first
from turbine_lite.graph.subgraph import Part, extract_part

__all__ = ["Outlined", "composite", "outline_composites", "without_marks"]

_F = TypeVar("_F", bound=Callable[..., Any])

# As MLIR has them: of a dialect or library, then of the operation.
_NAME = re.compile(r"[A-Za-z_][\w$]*(\.[A-Za-z_][\w$]*)+")
_KEY = re.compile(r"[A-Za-z_][\w$.]*")

_calls = itertools.count()


def composite(function: _F, name: str, **attributes: Any) -> _F:
    """A function that exported StableHLO has as one operation, with what it computes beside it.

    ``stablehlo.composite "name" ... {composite_attributes = {...}, decomposition = @name.impl}``; compilers that know
    the operation replace it, all others call the decomposition, a private function. In the other dialects it is a call
    of that function. Under ``torch.compile`` and in eager it is ``function``.

    Args:
        function: takes and returns tensors, by themselves or in containers; what else it takes is fixed when the
            program is exported.
        name: of the operation, with a namespace: ``"mylib.attention"``.
        attributes: of the operation: bool, int, float, str, and lists of numbers.

    Raises:
        OptionError: the name is none, or an attribute is of another type.
    """
    if not _NAME.fullmatch(name):
        raise OptionError(f"composites have names with a namespace, such as 'mylib.{name or 'name'}', not {name!r}")
    written = _dictionary(attributes)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_exporting():
            return function(*args, **kwargs)
        call = next(_calls)
        positions = itertools.count()

        def enter(tensor: torch.Tensor) -> torch.Tensor:
            marked: torch.Tensor = _INPUT(tensor, call, next(positions))
            return marked

        def leave(tensor: torch.Tensor) -> torch.Tensor:
            marked: torch.Tensor = _OUTPUT(tensor, call, next(positions), name, written)
            return marked

        args, kwargs = pytree.tree_map_only(torch.Tensor, enter, (args, kwargs))
        positions = itertools.count()
        return pytree.tree_map_only(torch.Tensor, leave, function(*args, **kwargs))

    return run  # type: ignore[return-value]  # it has the function's signature


def _dictionary(attributes: dict[str, Any]) -> str:
    for key in attributes:
        if not _KEY.fullmatch(key):
            raise OptionError(f"{key!r} cannot be the name of an attribute in MLIR")
    return "{" + ", ".join(f"{key} = {_attribute(key, value)}" for key, value in sorted(attributes.items())) + "}"


def _attribute(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value} : i64"
    if isinstance(value, float) and value - value == 0:
        return f"{value:e} : f32"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (list, tuple)) and all(isinstance(one, (bool, int, float)) for one in value):
        return "[" + ", ".join(_attribute(key, one) for one in value) + "]"
    raise OptionError(f"attribute {key} is {value!r}; possible are bool, int, finite float, str and lists of numbers")


@torch.library.custom_op("turbine_lite::composite_input", mutates_args=())
def _composite_input(tensor: torch.Tensor, call: int, position: int) -> torch.Tensor:
    return tensor.clone()


@torch.library.custom_op("turbine_lite::composite_output", mutates_args=())
def _composite_output(tensor: torch.Tensor, call: int, position: int, name: str, attributes: str) -> torch.Tensor:
    return tensor.clone()


@torch.library.custom_op("turbine_lite::call_function", mutates_args=())
def _call_function(operands: list[torch.Tensor], symbol: str) -> list[torch.Tensor]:
    raise NotImplementedError("a call of a function that was outlined exists in graphs only")


@_composite_input.register_fake
def _(tensor: torch.Tensor, call: int, position: int) -> torch.Tensor:
    return torch.empty_like(tensor)


@_composite_output.register_fake
def _(tensor: torch.Tensor, call: int, position: int, name: str, attributes: str) -> torch.Tensor:
    return torch.empty_like(tensor)


_INPUT = torch.ops.turbine_lite.composite_input.default
_OUTPUT = torch.ops.turbine_lite.composite_output.default
_CALL = torch.ops.turbine_lite.call_function.default


class Outlined(NamedTuple):
    """A composite's function: its symbol, graph, name and attributes (MLIR text)."""

    symbol: str
    gm: GraphModule
    name: str
    attributes: str


def outline_composites(gm: GraphModule, taken: set[str]) -> tuple[GraphModule, list[Outlined]]:
    """A graph in which composites are calls of functions, and the functions.

    ``taken`` are symbols that the module has already; those of the functions are added.
    """
    marks = [node for node in gm.graph.nodes if node.target in (_INPUT, _OUTPUT)]
    if not marks:
        return gm, []
    gm = copy_graph_module(gm)
    outlined: list[Outlined] = []
    while outputs := _innermost(gm):
        outlined.append(_outline(gm, outputs, taken))
    return without_marks(gm), outlined  # those of composites none of whose results is used


def without_marks(gm: GraphModule) -> GraphModule:
    """The graph with all composites as if they were none."""
    gm = copy_graph_module(gm)
    for node in list(gm.graph.nodes):
        if node.target in (_INPUT, _OUTPUT):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
    return gm


def _innermost(gm: GraphModule) -> list[Node]:
    """The marks of the results of a composite within which there is no other."""
    nodes = list(gm.graph.nodes)
    first = next((node for node in nodes if node.target is _OUTPUT), None)
    if first is None:
        return []
    return [node for node in nodes if node.target is _OUTPUT and node.args[1] == first.args[1]]


def _outline(gm: GraphModule, outputs: list[Node], taken: set[str]) -> Outlined:
    graph = gm.graph
    call, name, attributes = outputs[0].args[1], str(outputs[0].args[3]), str(outputs[0].args[4])
    order = {node: index for index, node in enumerate(graph.nodes)}
    inputs = [node for node in graph.nodes if node.target is _INPUT and node.args[1] == call]
    begins = order[inputs[0]] if inputs else 0
    body: set[Node] = set()
    pending: list[Any] = [output.args[0] for output in outputs]
    while pending:
        node = pending.pop()
        if node in body or node in inputs or node.op != "call_function" or order[node] < begins:
            continue
        body.add(node)
        pending += node.all_input_nodes
    part = extract_part(gm, [node for node in graph.nodes if node in body])
    operands = _with_operands(part, inputs)
    produced: list[Any] = [output.args[0] for output in outputs]
    symbol = _unique(f"{name}.impl", taken)
    values = dict(zip(part.sources, part.gm.graph.find_nodes(op="placeholder"), strict=True))
    values |= dict(zip(part.results, part.gm.graph.output_node().args[0], strict=True))  # type: ignore[arg-type]  # a tuple
    part.gm.graph.output_node().args = (tuple(values[node] for node in produced),)
    put_first(part.gm.graph, [values[node] for node in operands])
    with graph.inserting_before(outputs[0]):
        outer = [operand.args[0] if operand in inputs else operand for operand in operands]
        made = graph.call_function(_CALL, (outer, symbol))
        made.meta = {"val": [node.meta["val"] for node in produced], "stack_trace": outputs[0].meta.get("stack_trace")}
        items = [graph.call_function(operator.getitem, (made, index)) for index in range(len(outputs))]
    for item, output in zip(items, outputs, strict=True):
        item.meta = dict(output.meta)
        output.replace_all_uses_with(item)
    for node in (*reversed(outputs), *reversed(inputs)):
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
    graph.eliminate_dead_code()
    return Outlined(symbol, part.gm, name, attributes)


def _with_operands(part: Part, inputs: list[Node]) -> list[Node]:
    """What the function is called with: all that was marked, in its order, and what it reads beside that."""
    for mark in inputs:
        if mark not in part.sources:  # the function does not read it; it is an operand nevertheless
            with part.gm.graph.inserting_before(next(iter(part.gm.graph.nodes))):
                placeholder = part.gm.graph.placeholder(mark.name)
            placeholder.meta = dict(mark.meta)
            part.sources.insert(0, mark)
    return [*inputs, *(source for source in part.sources if source not in inputs and source.op != "get_attr")]


def _unique(symbol: str, taken: set[str]) -> str:
    name = next(
        name for count in itertools.count() if (name := symbol if not count else f"{symbol}_{count}") not in taken
    )
    taken.add(name)
    return name
