"""int8 and uint8: eager's values, natively."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import assert_same, compiled

aten = torch.ops.aten


def numbers(dtype, *shape):
    limits = torch.iinfo(dtype)
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randint(limits.min, limits.max + 1, shape, generator=generator).to(dtype)


PROGRAMS = {
    "arithmetic": lambda x, y: (x + y, x - y, x * y, -x, x * 3 - 5, x + 200 if x.dtype is torch.uint8 else x + 100),
    "division": lambda x, y: (x / 7, x // 7, x % 7, x // (y | 1), x % (y | 1), torch.div(x, 5, rounding_mode="trunc")),
    "bits": lambda x, y: (~x, x & y, x | 3, x ^ y, x << 2, x >> 1, x << 9, x >> 9, x & 15),
    "comparison": lambda x, y: (x < y, x == y, x >= 3, torch.maximum(x, y), torch.where(x > y, x, y), x.clamp(2, 99)),
    "reduction": lambda x, y: (x.sum(), x.sum(1), x.sum(0, dtype=x.dtype), x.prod(1), x.amax(0), x.min(1), x.argmax(1)),
    "scan": lambda x, y: (x.cumsum(0), x.cumsum(1, dtype=x.dtype), x.any(1), x.all(0)),
    "casts": lambda x, y: (x.float() * 1.5, x.long(), x.bool(), x.short() * 300, (x.float() / 3).to(x.dtype)),
    "from wider": lambda x, y: ((x.int() * 1000).to(x.dtype), (y.long() << 6).to(x.dtype), (y * 9.0).int().to(x.dtype)),
    "promotion": lambda x, y: (x + torch.tensor(5, dtype=torch.int16), x.short() + y, x + True, x + 0.5, y * x.half()),
    "movement": lambda x, y: (torch.cat([x, y]), x.t() + y.t(), x.reshape(-1)[3:9], x[:, [1, -2]], x.flip(0)),
    "matmul": lambda x, y: x @ y.t(),
    "writes": lambda x, y: (
        x.index_put((torch.tensor([0, 0, -1]),), y[0], accumulate=True),
        x.scatter_add(0, (y.long() % 5 + 5) % 5, y),
        x.masked_fill(x > 5, 7),
    ),
    "constants": lambda x, y: (
        x + torch.ones(7, dtype=x.dtype),
        torch.arange(7, dtype=x.dtype) * x,
        torch.zeros_like(x),
        torch.full((3,), 100, dtype=x.dtype),
        torch.tensor([1, 2, 100], dtype=x.dtype),
    ),
    "powers": lambda x, y: (x**2, x**3, x**0),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_programs(program, dtype):
    x, y = numbers(dtype, 5, 7), numbers(dtype, 7, 5).t().contiguous()
    assert_same(compiled(lambda x, y: program(x, y))(x, y), program(x, y))


def test_both_signs_together():
    x, y = numbers(torch.int8, 9), numbers(torch.uint8, 9)
    assert_same(
        compiled(lambda x, y: (x + y, x * y, x < y, x.to(torch.uint8), y.to(torch.int8)))(x, y),
        (x + y, x * y, x < y, x.to(torch.uint8), y.to(torch.int8)),
    )


def test_channels_last_and_dynamic_shapes():
    def program(x):
        return (x * 3 + 1).permute(0, 2, 1), x.float().mean((1, 2)).round().to(torch.uint8)

    run = torch.compile(program, backend="turbine_lite_cpu", dynamic=True, options={"fallback": "error"})
    for size in (3, 6):
        x = numbers(torch.uint8, 2, size, 4)
        assert_same(run(x), program(x))


def test_other_views_of_the_bytes_run_in_eager():
    x = numbers(torch.uint8, 8)
    run = torch.compile(lambda x: (x + 1).view(torch.int32) + 1, backend="turbine_lite_cpu")
    assert_same(run(x), (x + 1).view(torch.int32) + 1)
