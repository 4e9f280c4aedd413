"""Attention that eager computes in one kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.fx import Node

from turbine_lite.graph.expansions.expansion import Expansion

__all__ = ["EXPANSIONS"]

aten = torch.ops.aten


def _is_forward_alone(node: Node) -> bool:
    """Whether nothing but the result itself is used: not what the kernel leaves for its backward."""
    dropout: Any = node.args[3] if len(node.args) > 3 else node.kwargs.get("dropout_p", 0.0)
    return bool(dropout == 0.0) and all(len(user.args) == 2 and user.args[1] == 0 for user in node.users)


def _flash_attention_for_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    decomposed = decomposition_table[aten._scaled_dot_product_flash_attention_for_cpu.default]
    result, _ = decomposed(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
    # The second result has no reader; PyTorch's decomposition has one of another shape.
    return result, query.new_zeros(query.shape[:-1], dtype=torch.promote_types(query.dtype, torch.float32))


EXPANSIONS = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: Expansion(_flash_attention_for_cpu, _is_forward_alone)
}
