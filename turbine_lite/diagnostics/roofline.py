"""How much a call computes and moves, and how much of either the machine can do in a second.

Together they say what a time could be: the roofline model of Williams, Waterman and Patterson 2009.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from turbine_lite.diagnostics.profiled import Peaks
from turbine_lite.diagnostics.timeline import seconds_of
from turbine_lite.graph.extern import kernels
from turbine_lite.graph.support import tensors_of
from turbine_lite.graph.views import computes
from turbine_lite.graph.work import multiplies_and_adds, operations_of

__all__ = ["bytes_of", "flops_of", "measured_peaks"]

# Of kernels with packed weights: the dimension of the result that is the weight's.
_WEIGHT_OF_KERNEL: dict[Any, int] = {kernels.linear: -1, kernels.linear_by_mkl: -1, kernels.convolution: 1}

_SIZE = 1024
_ELEMENTS = 16 << 20
_RUNS = 7


def flops_of(node: Node) -> int:
    """Floating-point operations of a call; a multiply-add counts as two. Views have none."""
    if node.op != "call_function" or not computes(node):
        return 0
    if node.target in _WEIGHT_OF_KERNEL:
        # A packed weight has the sizes of the weight: (in, out) of a matmul, (out, in / groups, ...) of a convolution.
        weight: Any = node.args[2]
        result, elements = node.meta["val"], weight.meta["val"].numel()
        return 2 * int(result.numel() * elements) // int(result.shape[_WEIGHT_OF_KERNEL[node.target]])
    return operations_of(node) * (2 if multiplies_and_adds(node) else 1)


def bytes_of(node: Node) -> int | None:
    """Bytes of a call's arguments and results; None where sizes are dynamic, and for views."""
    tensors = [*tensors_of(node), *(tensor for source in node.all_input_nodes for tensor in tensors_of(source))]
    if not computes(node) or any(isinstance(size, torch.SymInt) for tensor in tensors for size in tensor.shape):
        return None
    return sum(tensor.nbytes for tensor in tensors)


def measured_peaks() -> Peaks:
    """What this machine's matmuls and copies reach now, on torch's threads."""
    a, b = torch.rand(_SIZE, _SIZE), torch.rand(_SIZE, _SIZE)
    source = torch.rand(_ELEMENTS)
    target = torch.empty_like(source)
    return Peaks(
        flops=2 * _SIZE**3 / _fastest(lambda: torch.mm(a, b)),
        bytes=2 * source.nbytes / _fastest(lambda: target.copy_(source)),
    )


def _fastest(call: Callable[[], Any]) -> float:
    return min(seconds_of(call) for _ in range(_RUNS))
