"""Integers divided by zero, by -1, and in vectors that are not full."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import NATIVE, assert_same

PROGRAMS = {
    "trunc": lambda x, d: torch.div(x, d, rounding_mode="trunc"),
    "floor": lambda x, d: x // d,
    "remainder": lambda x, d: x % d,
    "fmod": torch.fmod,
    "shared": lambda x, d: (x // d, x % d, torch.fmod(x + 3, d), d * 2),
    "of reductions": lambda x, d: x.sum(1, keepdim=True) // (d.amax(1, keepdim=True) + d * d),
}
DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def integers(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Dividends with the least number among them and divisors without zero."""
    x = torch.arange(shape[0] * shape[1]).reshape(shape) * 3 - (0 if dtype is torch.uint8 else 11)
    d = torch.tensor([-1, 2, -3, 4, -7, 1])[torch.arange(x.numel()) % 6].reshape(shape)
    x, d = x.to(dtype), (d.abs() if dtype is torch.uint8 else d).to(dtype)
    x[0, 0] = torch.iinfo(dtype).min
    return x, d


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_division(name, dtype, dynamic):
    program = PROGRAMS[name]
    call = torch.compile(program, backend="turbine_lite_cpu", dynamic=dynamic, options=NATIVE)
    for shape in ((3, 5), (2, 9)) if dynamic else ((3, 5),):
        x, d = integers(shape, dtype)
        if name == "trunc":
            x[0, 0] += 1  # eager itself ends the process for the least number divided by -1
        assert_same(call(x, d), program(x, d))
        d[1, 1] = 0
        if name != "of reductions":
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                call(x, d)


@pytest.mark.parametrize("divisor", [0, torch.tensor(0), torch.tensor([2, 0])], ids=str)
def test_a_divisor_known_to_be_zero(divisor):
    call = torch.compile(lambda x: (x + 1) // divisor, backend="turbine_lite_cpu")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        call(torch.tensor([3, 4]))


@pytest.mark.parametrize("divisor", [-1, 3, -4])
def test_a_constant_divisor(divisor):
    x = torch.tensor([-(2**63), 7, -7])
    call = torch.compile(lambda x: (x // divisor, x % divisor), backend="turbine_lite_cpu", options=NATIVE)
    assert_same(call(x), (x // divisor, x % divisor))
