"""Operators written as smaller ones, as AOTAutograd traces them and as regions for IREE are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import get_decompositions

from turbine_lite.graph.signature import dense_order, inverse

__all__ = ["decomposition_table", "decompositions_before_partition", "draws_random_numbers"]

aten = torch.ops.aten

# Operators of training graphs that torch-mlir's table leaves whole and that have no lowering to IREE.
_FOR_TRAINING = (
    aten.embedding_dense_backward,
    aten.native_batch_norm_backward,
    aten.native_group_norm_backward,
    aten.native_layer_norm_backward,
    aten.native_batch_norm,
    aten._native_batch_norm_legit_functional,
    aten._batch_norm_with_update_functional,
    aten.batch_norm_backward,
    aten.select_backward,
    aten.slice_backward,
    aten.unfold_backward,
    aten.max_pool2d_with_indices_backward,
    aten.nll_loss_backward,
    aten.nll_loss2d_backward,
    aten._log_softmax_backward_data,
    aten._softmax_backward_data,
    aten.gelu_backward,
    aten.silu_backward,
    aten.hardswish_backward,
    aten.hardsigmoid_backward,
    aten.hardtanh_backward,
    aten.leaky_relu_backward,
    aten.rrelu_with_noise_backward,
    aten.elu_backward,
    aten.tanh_backward,
    aten.sigmoid_backward,
    aten.mse_loss_backward,
    aten.smooth_l1_loss_backward,
    aten.huber_loss_backward,
    aten.cudnn_batch_norm_backward,
)


# Operators that AOTAutograd leaves whole, and that are decomposed where they run in IREE: eager has a kernel that does
# all of it, and what a layer is can be told from them.
_WHOLE = (
    aten.addmm.default,
    aten.silu.default,
    aten.hardswish.default,
    aten.hardsigmoid.default,
    aten.native_layer_norm.default,
    aten.native_group_norm.default,
    aten._native_batch_norm_legit_no_training.default,
    aten._native_batch_norm_legit_functional.default,
    aten.embedding_dense_backward.default,
    aten.native_batch_norm_backward.default,
    aten.native_layer_norm_backward.default,
    aten.native_group_norm_backward.default,
    aten.gelu_backward.default,
    aten.silu_backward.default,
    aten.threshold_backward.default,
    aten._softmax_backward_data.default,
    aten._log_softmax_backward_data.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
)


@functools.cache
def decompositions_before_partition() -> dict[Any, Callable[..., Any]]:
    """The table for AOTAutograd: without operators that are to be decomposed only where they run in IREE."""
    return {op: function for op, function in decomposition_table().items() if op not in _WHOLE}


@functools.cache
def decomposition_table() -> dict[Any, Callable[..., Any]]:
    """All decompositions: torch-mlir's table and more for training, without what would change what the caller sees.

    Decompositions of views would lose that they are views (and put ``prims`` views before autograd); those of random
    operators would draw other numbers than eager does.
    """
    from torch_mlir.extras.fx_decomp_util import get_decomposition_table

    table = dict(get_decomposition_table())
    table.update(get_decompositions(_FOR_TRAINING))
    table = {op: function for op, function in table.items() if _keeps_meaning(op)}
    # Kept apart from index, whose indices are the user's, see graph/bounds.py.
    for op in (aten._unsafe_index.Tensor, aten._unsafe_index_put.default):
        table.pop(op, None)
    table[aten.native_dropout.default] = _native_dropout
    table[aten.threshold_backward.default] = _threshold_backward
    return table


def _keeps_meaning(op: Any) -> bool:
    """Whether an operator may be decomposed without a change that the caller could see."""
    return not op.is_view and not draws_random_numbers(op)


def draws_random_numbers(op: Any) -> bool:
    """Whether calls of an operator depend on the generator's state."""
    # Attention carries the tag for its dropout; without dropout (else AOTAutograd takes another path) it is pure.
    return torch.Tag.nondeterministic_seeded in op.tags and "attention" not in str(op)


def _native_dropout(input: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Dropout as eager computes it, with a mask that depends on nothing but the shape.

    So all masks of a graph can be drawn in eager before its first region, and dropout cuts nothing in two.
    """
    if train is False:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    keep = 1.0 - p
    # Eager draws in the order of memory: of the dense tensor whose permutation the mask is.
    like = torch.empty_like(input, dtype=torch.bool)
    order = dense_order(like) or tuple(range(input.dim()))
    memory = torch.empty([input.shape[dim] for dim in order], dtype=torch.bool, device=input.device)
    mask = aten.bernoulli.p(memory, keep).permute(inverse(order))
    return input * mask * (0.0 if keep == 0 else 1.0 / keep), mask


def _threshold_backward(grad_output: torch.Tensor, self: torch.Tensor, threshold: float) -> torch.Tensor:
    # PyTorch's decomposition has the gradient's dtype, its kernel the promoted one.
    return torch.where(self <= threshold, 0, grad_output).to(torch.result_type(grad_output, self))
