"""Padding that a convolution can do itself."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph

from turbine_lite.graph.extern.choose import KERNEL

__all__ = ["fold_padding"]

aten = torch.ops.aten


def fold_padding(graph: Graph) -> None:
    """Move zeros around an image into the padding of the convolution that reads it, in place.

    Only as many zeros on each side as on the other: a convolution has one number for both.
    """
    for node in list(graph.nodes):
        if node.target is not aten.convolution.default or KERNEL not in node.meta or node.args[6]:
            continue
        padded, around = node.args[0], node.args[4]
        zeros = _zeros_around(padded, len(around))
        if zeros is None:
            continue
        folded = [own + more for own, more in zip(around, zeros, strict=True)]
        node.args = (padded.args[0], *node.args[1:4], folded, *node.args[5:])
    graph.eliminate_dead_code()


def _zeros_around(node: Any, dims: int) -> list[int] | None:
    """How many zeros a call puts before and after each of the last dimensions; None if it does something else."""
    if node.target is not aten.constant_pad_nd.default or (len(node.args) > 2 and node.args[2] != 0):
        return None
    pairs = list(zip(node.args[1][::2], node.args[1][1::2], strict=True))  # from the last dimension on
    if len(pairs) > dims or any(before != after or before < 0 for before, after in pairs):
        return None
    return [before for before, _ in reversed(pairs + [(0, 0)] * (dims - len(pairs)))]
