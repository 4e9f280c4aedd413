"""What does not depend on the arguments of a region is computed by torch when the region is prepared.

torch-mlir folds operators on constants, too, and gets comparisons of floating-point ones wrong: in a program,
``torch.tensor(2.0) == 0`` is True.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule, Node

from turbine_lite.graph.insertion import origin_of
from turbine_lite.graph.sizes import is_static

__all__ = ["EMBEDDED_ELEMENTS", "fold_constants"]

aten = torch.ops.aten

# Tensors of up to this many elements become literals of the program.
EMBEDDED_ELEMENTS = 16

# They read nothing of their argument but its shape; what they fill with, None: what they are told.
_LIKE = {aten.full_like.default: None, aten.zeros_like.default: 0, aten.ones_like.default: 1}

# More is not computed here; 64 MB of float32.
_MOST_ELEMENTS = 1 << 24


def fold_constants(gm: GraphModule) -> dict[Node, torch.Tensor]:
    """Replace calls on constants by small literals, or by ``full`` where all elements are the same; in place.

    Returns:
        The values of the nodes that are constant, those that stayed calls too.
    """
    with unset_fake_temporarily(), torch.no_grad():
        values = _fold(gm)
    gm.graph.eliminate_dead_code()
    return values


def _fold(gm: GraphModule) -> dict[Node, torch.Tensor]:
    values: dict[Node, torch.Tensor] = {}
    for node in list(gm.graph.nodes):
        if node.op == "get_attr":
            attribute = getattr(gm, str(node.target))
            if isinstance(attribute, torch.Tensor):
                values[node] = attribute
        elif _is_constant(node, values):
            value = _evaluate(node, values)
            values[node] = value
            if node.all_input_nodes:
                values[_replace(gm, node, value)] = value
    return values


def _is_constant(node: Node, values: dict[Node, torch.Tensor]) -> bool:
    result = node.meta.get("val")
    return (
        node.op == "call_function"
        and isinstance(result, torch.Tensor)
        and is_static(result.shape)
        and math.prod(result.shape) <= _MOST_ELEMENTS
        and (_fill(node) is not None or all(source in values for source in node.all_input_nodes))
    )


def _fill(node: Node) -> Any:
    """The number that a call makes all elements of, whatever its arguments hold; None if that is no constant."""
    if node.target not in _LIKE:
        return None
    known: Any = _LIKE[node.target]
    fill = node.args[1] if known is None else known
    return None if isinstance(fill, Node) else fill


def _evaluate(node: Node, values: dict[Node, torch.Tensor]) -> torch.Tensor:
    assert callable(node.target)
    fill = _fill(node)
    if fill is not None:
        result = node.meta["val"]
        return torch.full(tuple(result.shape), fill, dtype=result.dtype)
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
    value: torch.Tensor = node.target(*args, **kwargs)
    return value


def _replace(gm: GraphModule, node: Node, value: torch.Tensor) -> Node:
    """The node that stands for ``value`` now; ``node`` itself if it is neither small nor uniform."""
    with gm.graph.inserting_before(node):
        if value.numel() <= EMBEDDED_ELEMENTS:
            name = f"_folded_{node.name}"
            gm.register_buffer(name, value.contiguous(), persistent=False)
            result = gm.graph.get_attr(name)
        else:
            element = _only_element(value)
            if element is None:
                return node
            options: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
            result = gm.graph.call_function(aten.full.default, (list(value.shape), element), options)
    result.meta = {"val": node.meta["val"], "origin": origin_of(node)}
    node.replace_all_uses_with(result)
    gm.graph.erase_node(node)
    return result


def _only_element(value: torch.Tensor) -> Any:
    """The element of which all others are copies, bit by bit, or None."""
    if value.dtype.is_complex:
        return None
    rows = value.contiguous().reshape(-1, 1).view(torch.uint8)
    return value.reshape(-1)[0].item() if bool((rows == rows[0]).all()) else None
