"""8-bit integers, on which IREE's compiler crashes, computed in 32 bits inside of a region.

Tensors of int8 and uint8 cross to IREE as they are. Inside they are widened, each operator runs on int32, and what
may have left the range of 8 bits is wrapped around as C does it. The compiler fuses the casts into their neighbours.
"""

from __future__ import annotations

import contextlib
import operator
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Graph, GraphModule, Node

from turbine_lite.errors import CompilationError
from turbine_lite.graph.insertion import call_with_meta
from turbine_lite.graph.support import reason_for

__all__ = ["NARROW_INTEGERS", "widen_narrow_integers"]

aten = torch.ops.aten
_convert = torch.ops.prims.convert_element_type.default

NARROW_INTEGERS = frozenset({torch.int8, torch.uint8})
_WIDE = torch.int32

# Their results are elements of their arguments: nothing to wrap around. Views are known by their schema.
_SELECTING = frozenset(
    {
        *("amax", "amin", "cat", "clamp_max", "clamp_min", "clone", "flip", "gather", "index", "index_select"),
        *("max", "maximum", "min", "minimum", "relu", "repeat", "roll", "select_scatter", "slice_scatter", "sort"),
        *("stack", "where", "zeros", "zeros_like", "ones", "ones_like", "_unsafe_view"),
    }
)


def widen_narrow_integers(gm: GraphModule) -> None:
    """Rewrite a region's graph, in place, so that int8 and uint8 are only the dtypes of its arguments and results.

    Raises:
        CompilationError: an operator does not take 32-bit integers in the place of 8-bit ones.
    """
    # The dtype that a widened value stands for, and the calls that got other arguments than they were traced with.
    graph = gm.graph
    narrow: dict[Node, torch.dtype] = {}
    changed: set[Node] = set()
    for node in list(graph.nodes):
        if node.op == "get_attr":
            dtype = getattr(gm, str(node.target)).dtype
            if dtype in NARROW_INTEGERS:
                with graph.inserting_before(node):
                    wide = _literal(gm, node, _WIDE)
                node.replace_all_uses_with(wide)
                narrow[wide] = dtype
        elif node.op == "placeholder":
            dtype = _dtype_of(node)
            if dtype in NARROW_INTEGERS:
                narrow[_settled(graph, node, dtype)] = dtype
        elif node.op == "call_function":
            dtype = _dtype_of(node)
            if dtype not in NARROW_INTEGERS and not any(s in narrow or s in changed for s in node.all_input_nodes):
                continue
            _run_again(node)
            if dtype is None:
                changed.add(node)
                continue
            result = _settled(graph, node, dtype)
            if dtype in NARROW_INTEGERS:
                narrow[result] = dtype
        elif node.op == "output":
            _narrow_results(gm, node, narrow)


def _literal(gm: GraphModule, node: Node, dtype: torch.dtype) -> Node:
    """The constant ``node`` in another dtype."""
    name = f"{node.target}_{str(dtype).removeprefix('torch.')}"
    with unset_fake_temporarily():
        gm.register_buffer(name, getattr(gm, str(node.target)).to(dtype), persistent=False)
    result = gm.graph.get_attr(name)
    result.meta = {**node.meta, "val": node.meta["val"].to(dtype)}
    return result


def _dtype_of(node: Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def _run_again(node: Node) -> None:
    """Give a call 32-bit dtypes in its arguments, and the fake value that it has with its new inputs."""
    if node.target is aten.view.dtype:
        raise _refused(node, "the bytes of 8-bit integers cannot be seen as another dtype")
    node.args = torch.fx.node.map_aggregate(node.args, _widened)
    node.kwargs = torch.fx.node.map_aggregate(node.kwargs, _widened)
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    assert callable(node.target)
    node.meta.pop("tensor_meta", None)  # the importer would believe it rather than the value
    try:
        with detect_fake_mode([n.meta.get("val") for n in node.all_input_nodes]) or contextlib.nullcontext():
            node.meta["val"] = node.target(*args, **kwargs)
    except Exception as error:  # an operator that exists for 8-bit integers alone
        raise _refused(node, f"does not run on 32-bit integers in the place of 8-bit ones: {error}") from error


def _widened(argument: Any) -> Any:
    return _WIDE if argument in NARROW_INTEGERS else argument


def _refused(node: Node, text: str) -> CompilationError:
    reason = reason_for(node, "dtype", text)
    return CompilationError(f"cannot widen {reason}", stage="import", reasons=(reason,))


def _settled(graph: Graph, node: Node, dtype: torch.dtype) -> Node:
    """The value of a call in the dtype that it had before, or as 32-bit integers within the range of that dtype."""
    users = list(node.users)
    result = node
    wanted = _WIDE if dtype in NARROW_INTEGERS else dtype
    with graph.inserting_before(node.next):
        if _dtype_of(node) is not wanted:
            result = call_with_meta(graph, _convert, (node, wanted), node)
        if dtype in NARROW_INTEGERS and not _selects(node):
            result = _wrapped_around(graph, result, dtype)
    for user in users:
        user.replace_input_with(node, result)
    return result


def _selects(node: Node) -> bool:
    if node.target is operator.getitem:
        producer = node.args[0]
        return isinstance(producer, Node) and _selects(producer)
    if node.op == "placeholder":
        return True
    schema = getattr(node.target, "_schema", None)
    is_view = getattr(node.target, "is_view", False)
    return is_view or (schema is not None and schema.name.removeprefix("aten::") in _SELECTING)


def _wrapped_around(graph: Graph, node: Node, dtype: torch.dtype) -> Node:
    """The value modulo 256, in the range of ``dtype``."""
    lowest = torch.iinfo(dtype).min
    if lowest:
        node = call_with_meta(graph, aten.sub.Scalar, (node, lowest), node)
    node = call_with_meta(graph, aten.bitwise_and.Scalar, (node, 0xFF), node)
    return call_with_meta(graph, aten.add.Scalar, (node, lowest), node) if lowest else node


def _narrow_results(gm: GraphModule, output: Node, narrow: dict[Node, torch.dtype]) -> None:
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    with gm.graph.inserting_before(output):
        for index, node in enumerate(results):
            if node in narrow:
                results[index] = call_with_meta(gm.graph, _convert, (node, narrow[node]), node)
    output.args = (tuple(results),)
