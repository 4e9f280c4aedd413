"""Indexing by several tensors of one dynamic shape: torch-mlir does not see that the shapes are equal.

``x[i, j]`` becomes ``x.flatten(0, 1)[i * x.shape[1] + j]``. By then the indices have been checked, and negative ones
made positive, one by one (``graph/bounds.py``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from turbine_lite.graph.insertion import call_with_meta
from turbine_lite.graph.sizes import is_static

__all__ = ["flatten_index"]

aten = torch.ops.aten


def flatten_index(graph: Graph, node: Node) -> None:
    """Make one index of several, in place."""
    source: Any
    indices: Any
    source, indices = node.args
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    if len(dims) < 2 or all(is_static(indices[dim].meta["val"].shape) for dim in dims):
        return

    def call(target: Any, *args: Any) -> Node:
        return call_with_meta(graph, target, args, node)

    first = dims[0]
    if dims != list(range(first, first + len(dims))):
        others = [dim for dim in range(source.meta["val"].dim()) if dim not in dims]
        source, indices, first = call(aten.permute.default, source, [*dims, *others]), [indices[d] for d in dims], 0
        dims = list(range(len(dims)))
    flat = None
    for dim in dims:
        size = source.meta["val"].shape[dim]
        size = size if isinstance(size, int) else call(aten.sym_size.int, source, dim)
        index = indices[dim]
        flat = index if flat is None else call(aten.add.Tensor, call(aten.mul.Tensor, flat, size), index)
    merged = call(aten.flatten.using_ints, source, first, dims[-1])
    node.args = (merged, [*[None] * first, flat])
