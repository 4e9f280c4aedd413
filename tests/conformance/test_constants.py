"""Constants of a program: torch-mlir folds operators on them wrongly, so torch does it before."""

from __future__ import annotations

import operator

import pytest
import torch

from tests.helpers import assert_same, compiled

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool]
MAKERS = {
    "tensor": lambda x, value, dtype: torch.tensor(value, dtype=dtype).expand(3),
    "two elements": lambda x, value, dtype: torch.tensor([value, 1], dtype=dtype),
    "full": lambda x, value, dtype: torch.full((3, 40), value, dtype=dtype),
    "full_like": lambda x, value, dtype: torch.full_like(x, value, dtype=dtype),
    "cast": lambda x, value, dtype: torch.full((5,), value, dtype=torch.int64).to(dtype),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_comparisons(make, dtype):
    def program(x):
        results = []
        for value in (2, 0):
            constant = make(x, value, dtype)
            for compare in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
                results += [compare(constant, other) for other in (0, 2, 2.5)]
            results += [constant.double(), constant.long(), constant.bool(), constant.logical_not()]
        return results

    x = torch.ones(4)
    assert_same(compiled(program)(x), program(x))


def test_power_of_a_constant():
    x = torch.linspace(0.1, 2, 12, dtype=torch.float64)
    assert_same(compiled(lambda x: x ** torch.tensor(2.0, dtype=torch.float64))(x), x**2, rtol=1e-12)


def test_a_constant_has_several_users():
    index = torch.tensor([0, 2, -1])
    x = torch.randn(4, 3)
    assert_same(compiled(lambda x: (x[index], x[:, index % 3], index + 1))(x), (x[index], x[:, index % 3], index + 1))


def test_boolean_constants_keep_apart():
    def program(x):
        masks = [torch.tensor([bool(i & 1), bool(i & 2), bool(i & 4)]) for i in range(8)]
        return [torch.where(mask, x, -x) for mask in masks]

    x = torch.arange(1.0, 4.0)
    assert_same(compiled(program)(x), program(x))


def test_constants_that_are_large():
    def program(x):
        rows = torch.arange(300)
        mask = rows[:, None] >= rows[None]
        return x.masked_fill(mask, 0.0), torch.zeros(300, 300) == x, torch.arange(300.0) / 3

    x = torch.randn(300, 300)
    assert_same(compiled(program)(x), program(x))
