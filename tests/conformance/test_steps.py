"""Operators that jump between neighbouring numbers, of computed ones and of ones out of range."""

from __future__ import annotations

import math

import pytest
import torch

from tests.helpers import assert_same, compiled

HALF = [torch.float16, torch.bfloat16]

PROGRAMS = {
    "to integers": lambda x: ((x * 200).to(torch.int32), (x * 200).long(), (x * 100).to(torch.int16)),
    "floor": lambda x: ((x * 200).floor(), (x * 200).ceil(), (x * 200).trunc(), (x * 201).round()),
    "comparison with a number": lambda x: ((x * 200) >= 389.3, (x * 200) == 390, (x / 3) < 0.65),
    "comparison": lambda x: ((x * 200) >= (x * 199), (x * 3) == (x + 0.5), x * x < x + 1),
    "where": lambda x: torch.where(x * 200 > 389.5, x, -x),
    "argmax": lambda x: ((x * 1.5).reshape(-1, 16).argmax(-1), (x * 1.5).reshape(-1, 16).argmin(0), (x * x).argmax()),
    "max": lambda x: (x * 1.5).reshape(-1, 16).max(-1),
    "sort": lambda x: (x.reshape(-1, 16) * 1.5).sort(-1),
}


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_of_computed_half_precision(name, dtype):
    x = (torch.rand(1024) * 4 - 2).to(dtype)
    assert_same(compiled(PROGRAMS[name])(x), PROGRAMS[name](x))


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_the_largest_of_equal_products(dtype):
    x, weight = torch.randn(64, 32).to(dtype), torch.randn(32, 256).to(dtype)

    def program(x, weight):
        return (x @ weight).argmax(-1), (x @ weight).max(-1).indices

    assert_same(compiled(program)(x, weight), program(x, weight))


@pytest.mark.parametrize("target", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("source", [*HALF, torch.float32, torch.float64], ids=str)
def test_casts_of_what_is_out_of_range(source, target):
    numbers = [40000.0, -40000.0, 3.75e9 + 77, 1e10, 1e20, math.nan, math.inf, -math.inf, 300.0, -300.0, 129.7, -1.5]
    x = torch.tensor(numbers, dtype=torch.float64).to(source)

    def program(x):
        return x.to(target), (x * 1.0 + 0.25).to(target), (x * 1.25).to(target).to(torch.int64) + 1

    assert_same(compiled(program)(x), program(x))
