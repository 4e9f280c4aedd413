"""Numbers as arguments, and operands of several dtypes: converted to the dtype that eager computes in."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import assert_same, compiled


def compare(number):
    return lambda x: (x == number, x != number, x < number, x <= number, x > number, x >= number)


INTEGERS = [0, 1, 3, 44, 100, -1, -100, 127, -128]


@pytest.mark.parametrize("number", [-1, 300, -200, 65536, -32769, 2**32, -(2**40), 3, True])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_integers_compared_with_a_number_out_of_range(dtype, number):
    x = torch.tensor(INTEGERS).to(dtype)
    assert_same(compiled(compare(number))(x), compare(number)(x))


@pytest.mark.parametrize("number", [-5, 300, -2, 7])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_integers_divided_by_a_number_out_of_range(dtype, number):
    def program(x):
        return x // number, x % number, torch.div(x, number, rounding_mode="trunc")

    x = torch.tensor(INTEGERS).to(dtype)
    assert_same(compiled(program)(x), program(x))


def test_bounds_out_of_range():
    x = torch.tensor([0, 44, 255], dtype=torch.uint8)

    def program(x):
        return x.clamp(min=-1), x.clamp(min=-5).double(), x.clamp_max(-3)

    assert_same(compiled(program)(x), program(x))


@pytest.mark.parametrize("number", [0.1, 0.7, 1 / 3, 300.0, 1e-50])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_numbers_are_rounded_before_they_are_compared(dtype, number):
    x = torch.tensor([number, 0.5, -number]).to(dtype)
    beside = torch.ones(2, dtype=torch.float64)

    def program(x, beside):
        return compare(number)(x), beside * number

    assert_same(compiled(program)(x, beside), program(x, beside))


@pytest.mark.parametrize("other", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_integers_are_compared_in_the_common_dtype(dtype, other):
    x = torch.tensor([2**24 + 1, 2**24, 2049, 2048]).to(dtype)
    y = torch.tensor([2.0**24, 2.0**24, 2048, 2048]).to(other)

    def program(x, y):
        return x == y, x > y, y < x, compare(2.0**24)(x), compare(2048.0)(x)

    assert_same(compiled(program)(x, y), program(x, y))


def test_booleans_and_numbers():
    x = torch.tensor([True, False])

    def program(x):
        return x + True, x + False, True + x, x * True, x + 1, x & True, x.eq(True), x < 2

    assert_same(compiled(program)(x), program(x))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32], ids=str)
def test_a_tensor_without_dimensions_takes_the_dtype_of_the_other(dtype):
    x = torch.tensor(INTEGERS).to(dtype)

    def program(x, number):
        return (
            *(torch.maximum(x, number), torch.minimum(number, x), x < number, number == x),
            *(x // number, x % number, torch.fmod(x, number), torch.div(x, number, rounding_mode="trunc")),
        )

    for value in (-1, 300, 2**33 + 5):
        number = torch.tensor(value)
        assert_same(compiled(program)(x, number), program(x, number))
