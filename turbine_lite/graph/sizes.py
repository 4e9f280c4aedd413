"""Sizes of tensors, static and dynamic."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

__all__ = ["is_static", "numel_hint", "size_hint"]


def is_static(sizes: Iterable[object]) -> bool:
    """Whether all sizes are known before a call."""
    return all(isinstance(size, int) for size in sizes)


def size_hint(size: int | torch.SymInt) -> int:
    """A size, if it is dynamic that which it had when the graph was captured."""
    if isinstance(size, torch.SymInt):
        return int(size.node.hint or 1)
    return size


def numel_hint(tensor: torch.Tensor) -> int:
    """The number of elements, of a dynamic size that which it had when the graph was captured."""
    return math.prod(size_hint(size) for size in tensor.shape)
