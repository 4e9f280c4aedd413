"""Writes of no elements, which IREE's compiler crashes on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from turbine_lite.graph.expansions.expansion import Expansion

__all__ = ["EXPANSIONS"]

aten = torch.ops.aten


def _unchanged(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return x.clone()


def _writes_nothing(node: Node) -> bool:
    index: Any = next(argument for argument in node.args[1:] if isinstance(argument, (Node, list, tuple)))
    indices = index if isinstance(index, (list, tuple)) else [index]
    sizes: list[object] = [size for i in indices if i is not None for size in i.meta["val"].shape]
    return any(isinstance(size, int) and size == 0 for size in sizes)


_WRITES = (
    *(aten.scatter.src, aten.scatter.value, aten.scatter.reduce, aten.scatter.value_reduce),
    *(aten.scatter_add.default, aten.scatter_reduce.two, aten.put.default, aten.index_put.default),
    *(aten.index_reduce.default, aten.index_add.default, aten.index_copy.default),
    *(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor, aten._unsafe_index_put.default),
)

EXPANSIONS = {op: Expansion(_unchanged, _writes_nothing) for op in _WRITES}
