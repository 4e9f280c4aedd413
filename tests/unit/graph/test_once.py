"""What depends on parameters alone is computed once, and anew when these change."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from tests.helpers import assert_same
from tests.unit.graph.kernels import run_compiled

X = torch.randn(2, 8, 300, generator=torch.Generator().manual_seed(0))


class _Normalised(nn.Module):
    """A convolution with normalised weights (a kernel), which may also be returned."""

    def __init__(self, returns=None):
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 16, 9, padding=4))
        self.returns = returns

    def forward(self, x):
        weight = self.convolution.weight
        result = nn.functional.conv1d(x, weight, self.convolution.bias, padding=4)
        return result if self.returns is None else (result, self.returns(weight))


def _once():
    return sum(count for name, count in counters["turbine_lite"].items() if name.endswith(": once"))


def test_changes_of_the_parameters_are_seen():
    model = _Normalised().eval()
    run = run_compiled(model)
    parameters = model.convolution.parametrizations.weight
    with torch.no_grad():
        for _ in range(2):
            assert_same(run(X), model(X))
        assert _once() == 3
        assert counters["turbine_lite"]["nodes native"] == 0
        parameters.original0.mul_(3)
        assert_same(run(X), model(X))
        parameters.original1.data = torch.randn_like(parameters.original1)
        assert_same(run(X), model(X))


def test_it_is_not_computed_again(monkeypatch):
    model = _Normalised().eval()
    run = run_compiled(model)
    with torch.no_grad():
        run(X)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            run(X)
    names = {event.key for event in profiler.key_averages()}
    assert "aten::linalg_vector_norm" not in names
    assert any("convolution" in name for name in names)


@pytest.mark.parametrize("returns", [lambda w: w, lambda w: w[:, 2:], lambda w: w.transpose(0, 1)])
def test_what_is_returned_is_the_callers_to_write(returns):
    model = _Normalised(returns).eval()
    run = run_compiled(model)
    with torch.no_grad():
        for _ in range(3):
            got, want = run(X), model(X)
            assert_same(got, want)
            got[1].zero_()


def test_without_copies_of_parameters_all_is_computed_on_each_call():
    model = _Normalised().eval()
    run = run_compiled(model, pack_parameters=False)
    with torch.no_grad():
        assert_same(run(X), model(X))
    assert not _once()
