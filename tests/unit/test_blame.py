"""Which operators a failed compilation is due to: they alone run in eager."""

from __future__ import annotations

import torch
from torch._dynamo.utils import counters

from tests.helpers import assert_same


def run(function, *args):
    got = torch.compile(function, backend="turbine_lite_cpu")(*args)
    assert_same(got, function(*args), rtol=1e-9)
    return {key for key in counters["turbine_lite"] if key.startswith("eager ")}


def test_one_operator_of_a_fused_kernel():
    # A sine in float64 does not link; the diagnostic names the whole kernel.
    x = torch.rand(5, dtype=torch.float64)
    assert run(lambda x: (x + 1 + x.sin()).exp(), x) == {"eager aten.sin.default: not-lowered"}


def test_operators_that_fail_only_together():
    # Each compiles alone; a gather from every third element does not.
    x, i, j = torch.rand(3, 3, 3), torch.tensor([0, 1]), torch.tensor([1, 1])
    reasons = run(lambda x, i, j: (x.tanh()[i, j] + x[i, j, 0][:, None]).exp(), x, i, j)
    assert reasons == {"eager aten.index.Tensor: not-lowered"}
