"""A backward pass of any results, where there is no loss."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

__all__ = ["backpropagate"]


def backpropagate(results: Any) -> None:
    """Compute the gradients of the sum of all floating-point numbers in the results that need one."""
    needing = [leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    sums = [leaf.sum().float() for leaf in needing if leaf.is_floating_point()]
    if sums:
        torch.autograd.backward(torch.stack(sums).sum())
