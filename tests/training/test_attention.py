"""Attention and its gradient, in IREE and in ATen's kernels, against eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.helpers import TOLERANCE, compiled
from turbine_lite.graph.extern import choose

_MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "boolean": {"attn_mask": torch.tensor([True, False, True, True, True]).expand(5, 5)},
    # Eager's kernel makes 0 of it, not NaN.
    "a row masked altogether": {"attn_mask": torch.zeros(5, 5).index_fill(0, torch.tensor([2]), -float("inf"))},
    "scale": {"scale": 0.3},
}


def _gradients(function, tensors, gradient):
    result = function(*tensors)
    return [result.detach(), *torch.autograd.grad(result, tensors, gradient)]


@pytest.mark.parametrize("extern", ["none", "auto"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mask", _MASKS)
def test_attention_and_its_gradient(mask, dtype, extern, monkeypatch):
    monkeypatch.setattr(choose, "LEAST_OPERATIONS", 0)
    options = dict(_MASKS[mask])
    if "attn_mask" in options and options["attn_mask"].is_floating_point():
        options["attn_mask"] = options["attn_mask"].to(dtype)
    generator = torch.Generator().manual_seed(0)
    q, k, v, gradient = (torch.randn(2, 3, 5, 8, generator=generator).to(dtype) for _ in range(4))
    tensors = [t.requires_grad_() for t in (q, k, v)]

    def function(q, k, v):
        return F.scaled_dot_product_attention(q * 2, k, v, **options)

    run = compiled(function, extern=extern)
    rtol, atol = TOLERANCE[dtype]
    for got, want in zip(_gradients(run, tensors, gradient), _gradients(function, tensors, gradient), strict=True):
        assert got.stride() == want.stride()
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol * float(want.abs().max().clamp_min(1)))


def test_attention_with_dropout_draws_eagers_numbers():
    q = torch.randn(1, 2, 4, 8, requires_grad=True)

    def function(q):
        return F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)

    results = []
    for run in (torch.compile(function, backend="turbine_lite_cpu"), function):
        torch.manual_seed(1)
        results.append(_gradients(run, [q], torch.ones_like(q)))
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
