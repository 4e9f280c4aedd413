"""Attention that eager computes in one kernel, and its gradient.

The logarithms of the softmax's sums, which the forward kernel leaves for the backward, make the weights again from the
scores (Dao et al. 2022, arXiv:2205.14135, algorithm 4). A row that is masked altogether has weights of 0, as in eager.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from turbine_lite.graph.expansions.expansion import Condition, Expansion

__all__ = ["EXPANSIONS", "has_no_dropout"]

aten = torch.ops.aten


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
    """Shapes: query (b, h, l, e), key (b, h / n, s, e), value (b, h / n, s, v); results (b, h, l, v) and (b, h, l)."""
    key, value = _for_each_head(key, query), _for_each_head(value, query)
    scores = _scores(query, key, is_causal, attn_mask, scale)
    largest = scores.amax(-1, keepdim=True)
    largest = torch.where(largest == -math.inf, 0.0, largest)
    weights = (scores - largest).exp()
    total = weights.sum(-1, keepdim=True)
    is_masked = total == 0
    weights = weights / torch.where(is_masked, 1.0, total)
    sums = torch.where(is_masked, 0.0, largest + total.log())
    return weights.to(value.dtype) @ value, sums.squeeze(-1)


def _flash_attention_for_cpu_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    groups = key.shape[1]
    key, value = _for_each_head(key, query), _for_each_head(value, query)
    factor = _scale(query, scale)
    weights = (_scores(query, key, is_causal, attn_mask, scale) - logsumexp.unsqueeze(-1)).exp()
    wide = logsumexp.dtype
    of_out = grad_out.to(wide)
    of_value = weights.transpose(-2, -1) @ of_out
    of_weights = of_out @ value.to(wide).transpose(-2, -1)
    of_scores = weights * (of_weights - (of_out * out.to(wide)).sum(-1, keepdim=True)) * factor
    of_query, of_key = of_scores @ key.to(wide), of_scores.transpose(-2, -1) @ query.to(wide)
    of_key, of_value = _sum_of_heads(of_key, groups), _sum_of_heads(of_value, groups)
    return of_query.to(query.dtype), of_key.to(key.dtype), of_value.to(value.dtype)


def _for_each_head(tensor: Tensor, query: Tensor) -> Tensor:
    """Keys or values (b, h / n, s, e), each head of which n heads of the query share, as (b, h, s, e)."""
    batch, groups, length, size = tensor.shape
    heads = query.shape[1]
    if heads == groups:
        return tensor
    shared = tensor.unsqueeze(2).expand(batch, groups, heads // groups, length, size)
    return shared.reshape(batch, heads, length, size)


def _sum_of_heads(gradient: Tensor, groups: int) -> Tensor:
    """The gradient of what :func:`_for_each_head` was given."""
    batch, heads, length, size = gradient.shape
    if heads == groups:
        return gradient
    return gradient.reshape(batch, groups, heads // groups, length, size).sum(2)


def _scores(query: Tensor, key: Tensor, is_causal: bool, mask: Tensor | None, scale: float | None) -> Tensor:
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = (query.to(wide) @ key.to(wide).transpose(-2, -1)) * _scale(query, scale)
    if is_causal:
        rows, columns = (torch.arange(size, device=query.device) for size in scores.shape[-2:])
        mask = columns <= rows.unsqueeze(-1)
    if mask is None:
        return scores
    return torch.where(mask, scores, -math.inf) if mask.dtype is torch.bool else scores + mask


def _scale(query: Tensor, scale: float | None) -> float | Tensor:
    if scale is not None:
        return scale
    size: Any = query.shape[-1]
    if isinstance(size, torch.SymInt):  # whose square root as a number would be that of the first call's
        wide = torch.promote_types(query.dtype, torch.float32)
        full: Any = torch.full  # whose stub has no symbolic value
        number: Tensor = full((), size, dtype=wide, device=query.device)
        return number.rsqrt()
    return 1 / math.sqrt(size)


def has_no_dropout(position: int) -> Condition:
    """Whether a call has none; its probability is the argument at this position."""

    def holds(node: Node) -> bool:
        dropout: Any = node.args[position] if len(node.args) > position else node.kwargs.get("dropout_p", 0.0)
        return bool(dropout == 0.0)

    return holds


EXPANSIONS = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: Expansion(_flash_attention_for_cpu, has_no_dropout(3)),
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: Expansion(
        _flash_attention_for_cpu_backward, has_no_dropout(6)
    ),
}
