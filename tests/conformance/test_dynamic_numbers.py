"""Dynamic sizes as operands: numbers that are only known in a call."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tests.helpers import NATIVE, TOLERANCE, assert_same

PROGRAMS = {
    "arithmetic": lambda x, i, n: (n - x, n - i, i * n, x + (n * n - 1) / 2, torch.add(x, x, alpha=n)),
    "quotients": lambda x, i, n: (n / x, n / (i + 1), i / n, x / n**0.5, x * math.sqrt(n)),
    "floor division": lambda x, i, n: (n // (i + 1), (i - 7) // n, n % (i + 1), (i - 7) % n, torch.fmod(i - 7, n)),
    "powers": lambda x, i, n: (n**x, x.abs() ** n, torch.xlogy(n, x.abs())),
    "comparisons": lambda x, i, n: (i < n, n <= i, i == n, x > n / 2),
    "choices": lambda x, i, n: (torch.where(x > 0, x, n), torch.where(x > 0, n, -n), i.masked_fill(i > 3, n)),
    "clamp": lambda x, i, n: (i.clamp(0, n - 1), x.clamp(max=n), i.clamp_min(n)),
    "bits": lambda x, i, n: (i ^ n, i & n, i << n, n << (i % 3), i >> n),
    "narrow": lambda x, i, n: (x.half() * n + n, i.int() * n + 1, n - i.to(torch.uint8)),
    "tensors of them": lambda x, i, n: (
        torch.full((2,), n),
        torch.full((2,), n / 2),
        x * torch.tensor(n),
        x.lerp(-x, n / 9),
    ),
    "reflection": lambda x, i, n: (
        F.pad(x[None], (1, 2), mode="reflect"),
        F.pad(x[None], (1, 2, 1, 1), mode="reflect"),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_dynamic_number(name):
    program = PROGRAMS[name]
    call = torch.compile(
        lambda x, i: program(x, i, x.shape[0]), backend="turbine_lite_cpu", dynamic=True, options=NATIVE
    )
    for shape in ((3, 5), (4, 6)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        i = torch.arange(x.numel()).reshape(shape)
        # On CPUs that compute in half precision themselves, a sum of a product is rounded once.
        rtol, atol = TOLERANCE[torch.float16] if name == "narrow" else TOLERANCE[torch.float32]
        assert_same(call(x, i), program(x, i, shape[0]), rtol=rtol, atol=atol)
