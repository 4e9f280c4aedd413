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


def test_operators_that_fail_only_together(monkeypatch):
    # Each compiles alone; a gather from one element of each row does not, without the pass that is for it.
    monkeypatch.setattr("turbine_lite.graph.for_iree.gather_strided_reads", lambda graph: None)
    x, i, j = torch.rand(3, 3, 3), torch.tensor([0, 1]), torch.tensor([1, 1])
    reasons = run(lambda x, i, j: (x.tanh()[i, j] + x[i, j, 0][:, None]).exp(), x, i, j)
    assert reasons == {"eager aten.index.Tensor: not-lowered"}


def test_a_search_out_of_time_names_nothing(monkeypatch):
    monkeypatch.setattr("turbine_lite.blame._SECONDS", -1.0)
    monkeypatch.setattr("turbine_lite.blame._TIMES", 0.0)
    x = torch.rand(5, dtype=torch.float64)
    assert run(lambda x: (x + 1 + x.sin()).exp(), x) == {"eager region: not-lowered"}
