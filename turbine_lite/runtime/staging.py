"""Small arguments and results by way of memory that stays where it is.

To hand a tensor to a program means to describe its memory to IREE, several objects for each, unless a tensor was at
that address before. In a model that computes much with little data, such as the next token of a language model, small
tensors are somewhere else on each call, and to describe them takes longer than to compute: 70 microseconds a region,
where all of Python is out of the caches by the time of the next call. To copy a few KiB takes one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from iree.runtime import VmVariantList

from turbine_lite.runtime.views import ALIGNMENT

__all__ = ["LARGEST", "Staged"]

# Bytes of all arguments and results together.
LARGEST = 64 << 10

_move = ctypes.memmove


class Staged:
    """Memory for the arguments and results of one call at a time, and the list that a program is called with.

    Args:
        slots: of the arguments and then the results, whatever makes a buffer view of an address and a shape.
        shapes: theirs.
        sizes: theirs in bytes, above 0.
        inputs: how many of them are arguments.
    """

    def __init__(
        self, slots: Sequence[Any], shapes: Sequence[Sequence[int]], sizes: Sequence[int], inputs: int
    ) -> None:
        starts = [0]
        for size in sizes:
            starts.append(-(-(starts[-1] + size) // ALIGNMENT) * ALIGNMENT)
        self._memory = torch.empty(starts[-1], dtype=torch.uint8)
        places = [(self._memory.data_ptr() + start, size) for start, size in zip(starts, sizes, strict=False)]
        self._inputs, self._outputs = places[:inputs], places[inputs:]
        self.arguments = VmVariantList(len(slots))
        for slot, shape, (address, _) in zip(slots, shapes, places, strict=True):
            self.arguments.push_ref(slot.view(address, shape))

    def put(self, args: Sequence[torch.Tensor]) -> None:
        """Copy arguments, all of them row-major, to where the program reads them."""
        for arg, (address, size) in zip(args, self._inputs, strict=True):
            _move(address, arg.data_ptr(), size)

    def take(self, results: Sequence[torch.Tensor]) -> None:
        """Copy what the program has written into tensors that were allocated for it."""
        for result, (address, size) in zip(results, self._outputs, strict=True):
            _move(result.data_ptr(), address, size)
