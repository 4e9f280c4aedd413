"""Views over dynamic sizes that torch-mlir would misread.

It pairs the sizes before and after from left to right, and takes a dynamic one for equal to what it is paired with: of
``[s0, s1, 5]`` seen as ``[1, s0 * s1, 5]`` the program then holds ``s1`` rows. Sizes that become others in number and
in order are flattened first, and seen anew from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from turbine_lite.graph.insertion import call_with_meta
from turbine_lite.graph.sizes import is_static

__all__ = ["flatten_before_view"]

aten = torch.ops.aten


def flatten_before_view(graph: Graph, node: Node) -> None:
    """Flatten first what a view makes other sizes of, in place."""
    source = node.args[0]
    assert isinstance(source, Node)
    before, after = list(source.meta["val"].shape), list(node.meta["val"].shape)
    if is_static(before):
        return
    segments = list(_segments(before, after))
    for start, end, _ in reversed(segments):
        if end - start > 1 and not is_static(before[start:end]):
            source = call_with_meta(graph, aten.flatten.using_ints, (source, start, end - 1), node)
    if len(segments) == len(after) == source.meta["val"].dim():
        node.replace_all_uses_with(source)
        return
    node.args = (source, *node.args[1:])


def _segments(before: list[Any], after: list[Any]) -> Iterator[tuple[int, int, int]]:
    """The smallest groups of sizes that hold the same elements: begin and end before, number after."""
    products = [1]
    for size in after:
        products.append(products[-1] * size)
    start = done = 0
    product = 1
    for end, size in enumerate(before, 1):
        product = product * size
        at = next((k for k in range(done + 1, len(products)) if statically_known_true(products[k] == product)), None)
        if at is not None:
            yield start, end, at - done
            start, done = end, at
    if start < len(before):
        yield start, len(before), len(after) - done
