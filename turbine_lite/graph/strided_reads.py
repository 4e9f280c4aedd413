"""Tensors made of every n-th element of rows, where an operator then reads single elements.

Alone, such a slice becomes a copy kernel for which IREE generates no code; computed together with what reads it, it is
no kernel of its own. Operators that read at indices need it in memory: it is gathered instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from turbine_lite.graph.index_operators import ALONG_DIMENSION, PUTS
from turbine_lite.graph.insertion import call_with_meta
from turbine_lite.graph.sizes import is_static
from turbine_lite.graph.views import is_view

__all__ = ["gather_strided_reads"]

aten = torch.ops.aten

_READERS = frozenset(
    {
        *(*ALONG_DIMENSION, *PUTS, aten.index.Tensor, aten._unsafe_index.Tensor),
        *(aten.flip.default, aten.take.default, aten.roll.default, aten.embedding.default, aten.convolution.default),
    }
)


def gather_strided_reads(graph: Graph) -> None:
    """Replace these slices by gathers, in place."""
    strided = {view: None for node in graph.nodes if node.target in _READERS for view in _strided_views(node)}
    for view in strided:
        with graph.inserting_before(view):
            view.replace_all_uses_with(_gathered(graph, view))
        graph.erase_node(view)


def _strided_views(reader: Node) -> Iterator[Node]:
    for source in reader.all_input_nodes:
        while is_view(source) and len(source.all_input_nodes) == 1:
            if _takes_a_stride(source):
                yield source
            source = source.all_input_nodes[0]


def _takes_a_stride(view: Node) -> bool:
    taken = _taken(view)
    return taken is not None and (view.target is aten.select.int or taken.step != 1)


def _taken(view: Node) -> range | None:
    """Which elements of each row a slice or a selection takes; None if it is neither, or that is not known."""
    if view.target not in (aten.slice.Tensor, aten.select.int):
        return None
    source: Any = view.args[0]
    arguments: Any = view.args[1:] or (0,)
    dim, *numbers = arguments
    *_, length = source.meta["val"].shape
    if dim % source.meta["val"].dim() != source.meta["val"].dim() - 1 or not is_static((length,)):
        return None
    if not all(number is None or isinstance(number, int) for number in numbers):
        return None
    if view.target is aten.select.int:
        first = range(length)[numbers[0]]
        return range(first, first + 1) if length > 1 else None
    start, end, step = (*numbers, None, None, None)[:3]
    return range(length)[slice(start, end, step)]


def _gathered(graph: Graph, view: Node) -> Node:
    source: Any = view.args[0]
    taken = _taken(view)
    assert taken is not None

    def call(target: Any, *args: Any, **kwargs: Any) -> Node:
        return call_with_meta(graph, target, args, view, **kwargs)

    device = source.meta["val"].device
    at = call(aten.arange.start_step, taken.start, taken.stop, taken.step, dtype=torch.int64, device=device)
    gathered = call(aten.index_select.default, source, source.meta["val"].dim() - 1, at)
    return call(aten.squeeze.dim, gathered, -1) if view.target is aten.select.int else gathered
