"""Writes at one position or none, along negative dimensions, and into tensors without dimensions."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import assert_same, compiled

SCALAR, OTHER, ZERO = torch.tensor(2.0), torch.tensor(3.0), torch.tensor(0)

pytestmark = pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter", "ignore:index_reduce")


@pytest.mark.parametrize("index", [ZERO, ZERO.reshape(1)], ids=["scalar", "list"])
def test_into_a_scalar(index):
    def program(x, i, s):
        same = s.reshape(i.shape)
        return (
            *(x.scatter(0, i, same), x.scatter(0, i, 4.0), x.scatter_add(0, i, same), x.index_fill(0, i, 7.0)),
            *(x.scatter(0, i, same, reduce="multiply"), x.scatter(0, i, 5.0, reduce="add")),
            *(x.scatter_reduce(0, i, same, reduce) for reduce in ("sum", "prod", "mean", "amax", "amin")),
            *(x.scatter_reduce(0, i, same, reduce, include_self=False) for reduce in ("sum", "mean")),
            *(x.index_reduce(0, i, s, reduce) for reduce in ("prod", "mean", "amax")),
            *(x.index_add(0, i, s, alpha=2), x.index_copy(0, i, s), x.put(i, same)),
        )

    assert_same(compiled(program)(SCALAR, index, OTHER), program(SCALAR, index, OTHER))


def test_of_a_scalar():
    def program(x):
        return x.prod(0), x.prod(0, dtype=torch.float64), x.cumsum(0), x.cumprod(0), x.sort(), x.msort()

    assert_same(compiled(program)(SCALAR), program(SCALAR))


@pytest.mark.parametrize("size", [1, 3])
def test_of_one_constant(size):
    """IREE takes the constant for zero."""
    last = torch.tensor([size - 1])
    four = torch.tensor([4.0])

    def program(x):
        return (
            *(x.scatter(0, last, 4.0), x.scatter(0, last, four), x.scatter_add(0, last, four)),
            *(x.scatter_reduce(0, last, four, "prod"), x.index_put((last,), four), x.index_fill(0, last, 4.0)),
            *(x.index_copy(0, last, four), x.index_add(0, last, four)),
        )

    x = torch.randn(size)
    assert_same(compiled(program)(x), program(x))


@pytest.mark.parametrize("accumulate", [False, True])
def test_at_one_position(accumulate):
    i = torch.tensor(1)

    def program(x, i, row, column):
        return (
            x.index_put((i,), row, accumulate),
            x.index_put((i,), row[0], accumulate),
            torch.ops.aten.index_put(x, [None, i], column, accumulate),
            x.index_put((i, -i), row[0], accumulate),
        )

    arguments = (torch.randn(3, 2), i, torch.randn(2), torch.randn(3))
    assert_same(compiled(program)(*arguments), program(*arguments))


@pytest.mark.parametrize("shape", [(3,), (3, 2), ()], ids=str)
def test_of_nothing(shape):
    x = torch.randn(shape)
    i, s = torch.zeros(0, *shape[1:], dtype=torch.int64), torch.randn(0, *shape[1:])

    def program(x, i, s):
        along = i.reshape(-1)
        writes = [x.scatter(0, i, s), x.scatter(0, i, 1.0), x.scatter_add(0, i, s), x.scatter_reduce(0, i, s, "mean")]
        writes += [x.put(along, s.reshape(-1)), x.index_fill(0, along, 1.0)]
        if x.dim():
            writes += [x.index_add(0, along, s), x.index_copy(0, along, s), x.index_reduce(0, along, s, "prod")]
            writes += [x.index_put((along,), torch.tensor(1.0)), x.index_put((along,), s, accumulate=True)]
        return writes

    assert_same(compiled(program)(x, i, s), program(x, i, s))


def test_along_negative_dimensions():
    """IREE's compiler crashes on scatters along them."""
    i, s = torch.stack([torch.randperm(5) for _ in range(5)]), torch.randn(5, 5)

    def program(x, i, s):
        return (
            *(x.scatter(-1, i, s), x.scatter(-1, i, 2.0), x.scatter_add(-1, i, s), x.gather(-1, i)),
            *(x.scatter_reduce(-1, i, s, "amax"), x.scatter_reduce(-2, i, s, "mean"), x.index_select(-1, i[0])),
            *(x.index_add(-1, i[0], x), x.index_reduce(-1, i[0], x, "prod"), x.index_copy(-1, i[0], x)),
        )

    x = torch.randn(10, 5)
    assert_same(compiled(program)(x, i, s), program(x, i, s))
