"""Operators that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from turbine_lite.graph.expansions.expansion import Expansion, always

__all__ = ["EXPANSIONS"]

aten = torch.ops.aten


def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    # torch-mlir takes no shift beyond the size.
    if not dims:
        return _roll(x.reshape(-1), shifts, [0]).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size: Any = x.shape[dim]
        if isinstance(size, int):
            first = (size - shift) % size
            x = torch.cat([x.narrow(dim, first, size - first), x.narrow(dim, 0, first)], dim) if first else x
        else:
            x = x.index_select(dim, (torch.arange(size, device=x.device) - shift) % size)
    return x.clone() if x.dim() == 0 else x


EXPANSIONS = {
    aten.roll.default: Expansion(_roll, always),
}
