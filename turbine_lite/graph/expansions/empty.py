"""Writes of no elements, which IREE's compiler crashes on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from turbine_lite.graph.expansions.expansion import Expansion
from turbine_lite.graph.index_operators import PUTS, WRITES_ALONG_DIMENSION

__all__ = ["EXPANSIONS"]

aten = torch.ops.aten


def _unchanged(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return x.clone()


def _writes_nothing(node: Node) -> bool:
    index: Any = next(argument for argument in node.args[1:] if isinstance(argument, (Node, list, tuple)))
    indices = index if isinstance(index, (list, tuple)) else [index]
    sizes: list[object] = [size for i in indices if i is not None for size in i.meta["val"].shape]
    return any(isinstance(size, int) and size == 0 for size in sizes)


_WRITES = (*WRITES_ALONG_DIMENSION, *PUTS, aten.put.default, aten.index_reduce.default)

EXPANSIONS = {op: Expansion(_unchanged, _writes_nothing) for op in _WRITES}
