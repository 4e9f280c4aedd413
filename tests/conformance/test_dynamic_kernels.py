"""Convolutions whose kernels, too, are of dynamic sizes, with paddings larger and smaller than they."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import assert_same

# stride, padding, dilation, output padding, kernel
CASES = [(1, 0, 1, 0, 3), (1, 2, 1, 0, 3), (1, 3, 1, 0, 3), (2, 3, 1, 1, 3), (7, 10, 4, 0, 3), (2, 1, 2, 1, 2)]


@pytest.mark.parametrize("dimensions", [1, 2])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_dynamic_kernel(case, transposed, dimensions):
    stride, padding, dilation, output_padding, kernel = case

    def convolve(x, weight):
        one = [1] * dimensions
        return torch.ops.aten.convolution(
            *(x, weight, None, [n * stride for n in one], [n * padding for n in one], [n * dilation for n in one]),
            *(transposed, [n * output_padding * transposed for n in one], 2),
        )

    def results(function):
        torch.manual_seed(0)
        x = torch.randn(2, 4, *(9, 8)[:dimensions], requires_grad=True)
        weight = torch.randn(4, 2, *[kernel] * dimensions, requires_grad=True)
        result = function(x, weight)
        result.sin().sum().backward()
        return result.detach(), x.grad, weight.grad

    compiled = torch.compile(convolve, backend="turbine_lite_cpu", dynamic=True)
    assert_same(results(compiled), results(convolve), rtol=1e-4, atol=1e-4)
