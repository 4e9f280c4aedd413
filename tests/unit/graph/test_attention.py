"""Attention written out for IREE: masks, scales, shared keys and values, gradients, dynamic sizes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters


def _tensors(heads, shared, length, size):
    torch.manual_seed(length)
    shapes = [(2, heads, length, size), *[(2, shared, length + 1, size)] * 2]
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("shared", [6, 2])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "choices", [{}, {"is_causal": True}, {"scale": 0.3}, {"mask": torch.bool}, {"mask": torch.float32}]
)
def test_results_and_gradients(choices, dynamic, shared):
    """Several heads of the query may share one of keys and values; with dynamic sizes one program serves all."""

    def function(q, k, v, mask):
        more = {name: value for name, value in choices.items() if name != "mask"}
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=shared != 6, **more)

    options = {"fallback": "error", "extern": "none"}
    run = torch.compile(function, backend="turbine_lite_cpu", dynamic=dynamic, options=options)
    counters.clear()
    for length, size in [(5, 8), (7, 4)] if dynamic else [(5, 8)]:
        tensors = _tensors(6, shared, length, size)
        mask = (torch.rand(length, length + 1) > 0.3).to(choices["mask"]) if "mask" in choices else None
        results = [function(*tensors, mask), run(*tensors, mask)]
        gradient = torch.randn(results[0].shape)
        expected, got = ([result, *torch.autograd.grad(result, tensors, gradient)] for result in results)
        for mine, theirs in zip(got, expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert counters["turbine_lite"]["graphs"] == 2
    assert counters["turbine_lite"]["nodes eager"] == 0
