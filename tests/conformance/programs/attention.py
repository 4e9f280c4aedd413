"""Attention."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.programs.harness import flags, normal, program

FAMILY = "attention"


@program(FAMILY, inputs=lambda: (normal(2, 2, 5, 4), normal(2, 2, 6, 4), normal(2, 2, 6, 3)))
def scaled_dot_product(q, k, v):
    return F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, v, scale=0.3)


@program(FAMILY, inputs=lambda: (normal(2, 2, 5, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 4)))
def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@program(
    FAMILY, inputs=lambda: (normal(2, 2, 4, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 4), flags(4, 5), normal(2, 1, 4, 5))
)
def masked(q, k, v, allowed, bias):
    allowed = allowed | torch.eye(4, 5, dtype=torch.bool)
    return F.scaled_dot_product_attention(q, k, v, allowed), F.scaled_dot_product_attention(q, k, v, bias)


@program(FAMILY, inputs=lambda: (normal(1, 4, 3, 4), normal(1, 2, 5, 4), normal(1, 2, 5, 4)))
def grouped_queries(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


@program(FAMILY, inputs=lambda: (normal(2, 6, 8),))
class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        mask = torch.triu(torch.full((6, 6), float("-inf")), 1)
        return self.attention(x, x, x, attn_mask=mask, need_weights=True)


@program(FAMILY, inputs=lambda: (normal(3, 2, 8), normal(5, 2, 6), flags(2, 5)))
class CrossAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 4, kdim=6, vdim=6)

    def forward(self, x, memory, padding):
        padding = padding & (torch.arange(5) > 0)
        return self.attention(x, memory, memory, key_padding_mask=padding, need_weights=False)[0]


@program(FAMILY, inputs=lambda: (normal(2, 5, 8),))
class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)

    def forward(self, x):
        return self.layer(x)


@program(FAMILY, inputs=lambda: (normal(2, 4, 8), normal(2, 5, 8)))
class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True, activation="gelu")

    def forward(self, x, memory):
        return self.layer(x, memory)


@program(FAMILY, inputs=lambda: (normal(1, 2, 6, 4), torch.arange(6)))
def rotary_positions(x, positions):
    frequencies = positions[:, None] * 10000.0 ** (-torch.arange(0, 4, 2) / 4)
    cos, sin = frequencies.cos().repeat(1, 2), frequencies.sin().repeat(1, 2)
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


@program(FAMILY, inputs=lambda: (normal(2, 5, 4), normal(2)))
def linear_biases(x, slopes):
    distance = torch.arange(5)[None] - torch.arange(5)[:, None]
    scores = x @ x.mT / math.sqrt(4) + slopes[:, None, None] * distance
    return scores.masked_fill(distance > 0, float("-inf")).softmax(-1) @ x


@program(FAMILY, inputs=lambda: (normal(1, 2, 8, 4), normal(1, 2, 8, 4), normal(1, 2, 8, 4)))
def sliding_window(q, k, v):
    distance = torch.arange(8)[:, None] - torch.arange(8)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(distance >= 0) & (distance < 3))


@program(FAMILY, inputs=lambda: (normal(1, 2, 4, 4, dtype=torch.bfloat16),))
def narrow(x):
    return F.scaled_dot_product_attention(x, x, x, is_causal=True)


@program(FAMILY, inputs=lambda: (normal(2, 2, 4, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 4)), grad=True)
def grad_of_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


@program(FAMILY, inputs=lambda: (normal(2, 4, 8),), grad=True)
class GradSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]
