"""Which operators a library's kernel runs faster than IREE does, as measured.

The ratios are times in IREE divided by times of the kernel, each with its parameters packed: medians of one run of
``python -m benchmarks.kernels`` on two cores of Zen 3, two threads, float32, torch 2.13 and IREE 3.13. Rows go as
IREE's side gets faster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from turbine_lite.environment import is_by_intel
from turbine_lite.graph.expansions.attention import has_no_dropout
from turbine_lite.graph.sizes import size_hint
from turbine_lite.graph.support import Reason, reason_for, tensors_of
from turbine_lite.graph.work import operations_of

__all__ = ["KERNEL", "is_large", "reason_for_kernel"]

aten = torch.ops.aten

# The key in a node's ``meta`` of the reason why it is left to a kernel.
KERNEL = "turbine_lite.kernel"

# Where IREE is slower by this much, the kernel is taken.
_MUCH_SLOWER = 1.3

# Calls of fewer multiply-adds stay where their neighbours are: what they cost is the call. Convolutions are slower in
# IREE already where they are small.
LEAST_OPERATIONS = 1_000_000
LEAST_OPERATIONS_OF_SMALL = 100_000

# Of a matrix of fewer rows nothing is gained by tiles, and IREE's packed weights are read faster.
_LEAST_ROWS = 16


@dataclasses.dataclass(frozen=True)
class _Row:
    """Calls of one class: what they are called, how many times slower IREE is, and which they are."""

    name: str
    slower: float
    holds_for: Callable[[Node], bool]
    small: bool = False  # whether it holds for small calls, too


def reason_for_kernel(node: Node, extern: str, *, beside: bool = False) -> Reason | None:
    """Why a call is to be left to a kernel of PyTorch's libraries, or None.

    Args:
        node: a call of the captured graph.
        extern: the option.
        beside: whether other calls of the graph are left to kernels.
    """
    if extern == "none" or node.target not in (_TABLE.keys() | _BESIDE.keys()) or not _is_float32(node):
        return None
    if extern == "all":
        return reason_for(node, "slower", "option extern")
    rows = (*_TABLE.get(node.target, ()), *(_BESIDE.get(node.target, ()) if beside else ()))
    row = next((row for row in rows if row.holds_for(node) and is_large(node, small=row.small)), None)
    if row is None or row.slower < _MUCH_SLOWER:
        return None
    return reason_for(node, "slower", f"{row.name} is slower in IREE: measured {row.slower:.1f}x (option extern)")


def is_large(node: Node, *, small: bool = False) -> bool:
    """Whether a call is of a size at which who runs it matters."""
    return operations_of(node) >= (LEAST_OPERATIONS_OF_SMALL if small else LEAST_OPERATIONS)


def _is_float32(node: Node) -> bool:
    return all(tensor.dtype is torch.float32 for tensor in tensors_of(node) if tensor.is_floating_point())


def _is_transposed(node: Node) -> bool:
    return bool(node.args[6])


def _is_depthwise(node: Node) -> bool:
    weight: Any = node.args[1]
    return _is_grouped(node) and size_hint(weight.meta["val"].shape[1]) == 1


def _is_grouped(node: Node) -> bool:
    groups: Any = node.args[8]
    return bool(groups != 1)


def _has_rows(node: Node) -> bool:
    return size_hint(node.meta["val"].shape[-2]) >= _LEAST_ROWS


def _is_vector_on_intel(node: Node) -> bool:
    return size_hint(node.meta["val"].shape[-2]) == 1 and is_by_intel()


def _always(node: Node) -> bool:
    return True


_MATMULS = (
    _Row("a matmul", 1.6, _has_rows),
    # There, MKL reads a matrix at 20 to 25 GB/s, IREE at 16, a copy of torch's at 19; on Zen 5 IREE is the faster one
    # (GPT-2 takes 0.6 of eager's time).
    _Row("a matmul with a vector, on a CPU of Intel's,", 1.4, _is_vector_on_intel, small=True),
)

# By operator; the first row that holds, for calls of its size, is taken.
_TABLE: dict[Any, tuple[_Row, ...]] = {
    aten.convolution.default: (
        _Row("a transposed convolution", 4.0, _is_transposed, small=True),
        _Row("a depthwise convolution", 2.9, _is_depthwise, small=True),
        _Row("a grouped convolution", 9.9, _is_grouped, small=True),
        # Of 3x3. Those of 1x1 take less time in IREE (0.7), but stay with their neighbours: else images would change
        # their layout in between, and batch norm and activations could not be fused.
        _Row("a convolution", 2.6, _always, small=True),
    ),
    aten.convolution_backward.default: (_Row("the gradient of a convolution", 21.6, _always),),
    aten.mm.default: _MATMULS,
    aten.addmm.default: _MATMULS,
    aten._scaled_dot_product_flash_attention_for_cpu.default: (_Row("attention", 1.7, has_no_dropout(3)),),
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: (
        _Row("the gradient of attention", 3.1, _always),
    ),
}

# The same for graphs with calls of the table above. Kernels leave OpenMP's threads spinning, and what follows in IREE
# has less of the machine.
_BESIDE: dict[Any, tuple[_Row, ...]] = {
    aten.native_layer_norm.default: (_Row("layer norm beside kernels", 1.9, _always, small=True),),
    aten.native_layer_norm_backward.default: (
        _Row("the gradient of layer norm beside kernels", 3.8, _always, small=True),
    ),
    # Batch norm itself is no slower in IREE (1.0), and fused with what follows.
    aten.native_batch_norm_backward.default: (
        _Row("the gradient of batch norm beside kernels", 1.6, _always, small=True),
    ),
    aten.gelu_backward.default: (_Row("the gradient of GELU beside kernels", 1.8, _always, small=True),),
    aten.embedding_dense_backward.default: (
        _Row("the gradient of an embedding beside kernels", 4.8, _always, small=True),
    ),
    aten.native_group_norm.default: (_Row("group norm beside kernels", 2.2, _always, small=True),),
}
