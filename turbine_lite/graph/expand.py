"""Operators without a right lowering, written out as operators that have one.

An expansion is a Python function with the operator's signature. It is traced when a region is prepared for IREE, so
what runs in eager is never expanded. ``graph/expansions`` holds the functions by family.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from turbine_lite.errors import CompilationError
from turbine_lite.graph.decompositions import decomposition_table, decompositions_before_partition
from turbine_lite.graph.expansions import EXPANSIONS, Expansion
from turbine_lite.graph.expansions.expansion import always
from turbine_lite.graph.insertion import origin_of
from turbine_lite.graph.sizes import is_static

__all__ = ["expand_operators", "is_expanded"]


def is_expanded(node: Node) -> bool:
    """Whether a call is replaced by its expansion before the importer sees it."""
    return _is_empty(node) or _expansion_of(node) is not None


def expand_operators(graph: Graph) -> None:
    """Replace all calls that have an expansion, those in expansions too, in place.

    Raises:
        CompilationError: an expansion gives results of other dtypes or ranks than the operator.
        Exception: whatever an expansion raises for arguments that its condition let through.
    """
    pending = [node for node in graph.nodes if node.op == "call_function"]
    while pending:
        node = pending.pop()
        if _is_empty(node):
            _replace_by_nothing(graph, node)
            continue
        expansion = _expansion_of(node)
        if expansion is not None:
            pending += _expand(graph, node, expansion)


def _expansion_of(node: Node) -> Expansion | None:
    for expansion in EXPANSIONS.get(str(node.target), ()):
        # An expansion may call the operator itself, with arguments for which it is right.
        if node.meta.get("expansion") is not expansion and expansion.applies_to(node):
            return expansion
    return _decompositions().get(str(node.target))


@functools.cache
def _decompositions() -> dict[str, Expansion]:
    """Those of the operators that the captured graph has whole, but for those with an expansion instead."""
    left_whole = decomposition_table().keys() - decompositions_before_partition().keys()
    return {str(op): Expansion(decomposition_table()[op], always) for op in left_whole if str(op) not in EXPANSIONS}


def _is_empty(node: Node) -> bool:
    """Whether the results have no elements: the compiler fails, or divides by zero, on many operators then."""
    results = node.meta.get("val")
    tensors = [results] if isinstance(results, torch.Tensor) else results
    return (
        isinstance(tensors, (list, tuple))
        and node.target not in (operator.getitem, torch.ops.aten.full.default)
        and all(isinstance(t, torch.Tensor) and is_static(t.shape) for t in tensors)
        and not any(t.numel() for t in tensors)
    )


def _replace_by_nothing(graph: Graph, node: Node) -> None:
    def empty(value: torch.Tensor) -> Node:
        result = graph.call_function(torch.ops.aten.full.default, (list(value.shape), 0), {"dtype": value.dtype})
        result.meta = {"val": value, "origin": origin_of(node)}
        return result

    value = node.meta["val"]
    with graph.inserting_before(node):
        _replace(graph, node, empty(value) if isinstance(value, torch.Tensor) else [empty(item) for item in value])


def _replace(graph: Graph, node: Node, result: Any) -> None:
    """Put a node, or one for each of several results, in the place of ``node``."""
    if isinstance(result, Node):
        node.replace_all_uses_with(result)
    else:
        for user in list(node.users):
            assert user.target is operator.getitem
            index = user.args[1]
            assert isinstance(index, int)
            user.replace_all_uses_with(result[index])
            graph.erase_node(user)
    graph.erase_node(node)


def _expand(graph: Graph, node: Node, expansion: Expansion) -> list[Node]:
    inputs = node.all_input_nodes
    values = [source.meta["val"] for source in inputs]

    def flat(*tensors: Any) -> Any:
        by_node = dict(zip(inputs, tensors, strict=True))
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), by_node.__getitem__)
        result = expansion.function(*args, **kwargs)
        return tuple(result) if isinstance(result, tuple) else result  # some decompositions return a named one

    with detect_fake_mode(values) or contextlib.nullcontext(), torch.no_grad():
        traced = make_fx(flat, decomposition_table=decomposition_table())(*values)
    _check_result(node, traced.graph.output_node())
    return _inline(graph, traced.graph, node, inputs, expansion)


def _check_result(node: Node, output: Node) -> None:
    """A result of another dtype or shape would be memory that the program does not write, or more than it may."""
    expected = [leaf for leaf in tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]
    results = [leaf.meta["val"] for leaf in tree_leaves(output.args[0]) if isinstance(leaf, Node)]
    if [(t.dtype, t.dim()) for t in results] != [(t.dtype, t.dim()) for t in expected]:
        got = ", ".join(f"{t.dtype}{list(t.shape)}" for t in results)
        raise CompilationError(f"the expansion of {node.target} gives {got}", stage="import")


def _inline(graph: Graph, body: Graph, node: Node, inputs: list[Node], expansion: Expansion) -> list[Node]:
    placeholders = [inner for inner in body.nodes if inner.op == "placeholder"]
    copies: dict[Node, Node] = dict(zip(placeholders, inputs, strict=True))
    added = []
    with graph.inserting_before(node):
        for inner in body.nodes:
            if inner.op == "call_function":
                copy = copies[inner] = graph.node_copy(inner, copies.__getitem__)
                copy.meta["origin"] = origin_of(node)
                copy.meta["expansion"] = expansion
                if "stack_trace" in node.meta:
                    copy.meta["stack_trace"] = node.meta["stack_trace"]
                added.append(copy)
    _replace(graph, node, torch.fx.map_arg(body.output_node().args[0], copies.__getitem__))
    return added
