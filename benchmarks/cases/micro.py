"""Operators alone, in the shapes that models give them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.cases.case import Case, Program

__all__ = ["MICRO"]


def _of(name: str, function: Callable[..., Any], *shapes: tuple[int, ...]) -> Case:
    """A function of random tensors."""

    return Case(name, "micro", lambda: Program(function, tuple(torch.randn(shape) for shape in shapes)))


def _module(name: str, build: Callable[[], nn.Module], shape: tuple[int, ...]) -> Case:
    return Case(name, "micro", lambda: Program(build(), (torch.randn(shape),)))


def _matmuls() -> Iterator[Case]:
    sizes = {
        "square_128": (128, 128, 128),
        "square_512": (512, 512, 512),
        "square_1024": (1024, 1024, 1024),
        "tall": (4096, 256, 64),
        "skinny": (8, 2048, 2048),
        "vector": (1, 2048, 2048),
    }
    for name, (m, k, n) in sizes.items():
        yield _of(f"matmul_{name}", lambda x, y: x @ y, (m, k), (k, n))
    yield _of("matmul_batched", lambda x, y: x @ y, (16, 128, 64), (16, 64, 128))


def _linears() -> Iterator[Case]:
    for rows in (1, 32, 128):
        yield _module(f"linear_gelu_{rows}", lambda: nn.Sequential(nn.Linear(768, 3072), nn.GELU()), (rows, 768))


def _convolutions() -> Iterator[Case]:
    def conv(name: str, size: int, *arguments: Any, batch: int = 1, kind: Any = nn.Conv2d, **more: Any) -> Case:
        return _module(f"conv_{name}", lambda: kind(*arguments, **more), (batch, arguments[0], size, size))

    yield conv("1x1", 28, 256, 256, 1)
    yield conv("3x3", 56, 64, 64, 3, padding=1)
    yield conv("3x3_batch_8", 28, 128, 128, 3, padding=1, batch=8)
    yield conv("5x5", 28, 64, 64, 5, padding=2)
    yield conv("stem_7x7", 224, 3, 64, 7, stride=2, padding=3)
    yield conv("strided", 56, 64, 128, 3, stride=2, padding=1)
    yield conv("depthwise_3x3", 56, 144, 144, 3, padding=1, groups=144)
    yield conv("depthwise_strided", 56, 144, 144, 3, stride=2, padding=1, groups=144)
    yield conv("depthwise_7x7", 56, 96, 96, 7, padding=3, groups=96)
    yield conv("grouped", 28, 128, 128, 3, padding=1, groups=8)
    yield conv("transposed", 28, 64, 32, 4, stride=2, padding=1, kind=nn.ConvTranspose2d)


def _pools_and_norms() -> Iterator[Case]:
    yield _module("max_pool", lambda: nn.MaxPool2d(3, 2, 1), (1, 64, 112, 112))
    yield _module("average_pool", lambda: nn.AvgPool2d(2), (1, 128, 56, 56))
    yield _module("global_average_pool", lambda: nn.AdaptiveAvgPool2d(1), (1, 512, 28, 28))
    yield _of("softmax", lambda x: x.softmax(-1), (512, 1024))
    yield _of("softmax_first_axis", lambda x: x.softmax(0), (512, 1024))
    yield _module("layer_norm", lambda: nn.LayerNorm(768), (512, 768))
    yield _module("batch_norm", lambda: nn.BatchNorm2d(64), (1, 64, 56, 56))
    yield _module("group_norm", lambda: nn.GroupNorm(32, 128), (1, 128, 56, 56))
    yield _module("rms_norm", lambda: nn.RMSNorm(768), (512, 768))


def _elementwise() -> Iterator[Case]:
    yield _of("add", lambda x, y: x + y, (1024, 1024), (1024, 1024))
    yield _of("gelu", F.gelu, (512, 3072))
    yield _of("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), (512, 3072))
    yield _of("silu", F.silu, (512, 3072))
    yield _of("exp_chain", lambda x, y: (x.exp() * y + x.tanh()).sigmoid() - y, (512, 1024), (512, 1024))
    yield _of("add_chain", lambda x, y: ((x + y) * 2 - x) * y + 1, (1024, 1024), (1024, 1024))


def _reductions() -> Iterator[Case]:
    for axis in (0, 1, 2):
        yield _of(f"sum_axis_{axis}", lambda x, axis=axis: x.sum(axis), (64, 128, 256))
    yield _of("sum_all", lambda x: x.sum(), (64, 128, 256))
    yield _of("max_last_axis", lambda x: x.amax(-1), (512, 1024))
    yield _of("argmax", lambda x: x.argmax(-1), (512, 1024))
    yield _of("variance", lambda x: x.var(-1), (512, 1024))


def _attention(name: str, *, masked: bool, shape: tuple[int, ...] = (1, 8, 256, 64)) -> Case:
    def make() -> Program:
        q, k, v = (torch.randn(shape) for _ in range(3))
        mask = torch.rand(shape[0], 1, shape[2], shape[2]) > 0.2 if masked else None
        attend = F.scaled_dot_product_attention
        return Program(lambda q, k, v, mask: attend(q, k, v, attn_mask=mask), (q, k, v, mask))

    return Case(name, "micro", make)


def _copies() -> Iterator[Case]:
    yield _of("concatenate", lambda x, y: torch.cat([x, y], 1), (512, 512), (512, 512))
    yield _of("transpose", lambda x: x.transpose(0, 1).contiguous(), (1024, 1024))
    yield _of("heads", lambda x: x.view(256, 8, 64).transpose(0, 1).contiguous(), (256, 512))
    ids = (0, 30000, (8, 128))
    yield Case("embedding", "micro", lambda: Program(nn.Embedding(30000, 768), (torch.randint(*ids),)))
    yield _of("sort", lambda x: x.sort(-1).values, (64, 1024))
    yield _of("top_k", lambda x: x.topk(8).values, (64, 1024))


MICRO: tuple[Case, ...] = (
    *_matmuls(),
    *_linears(),
    *_convolutions(),
    *_pools_and_norms(),
    *_elementwise(),
    *_reductions(),
    _attention("attention", masked=False),
    _attention("attention_masked", masked=True),
    _attention("attention_long", masked=False, shape=(1, 8, 1024, 64)),
    *_copies(),
)
