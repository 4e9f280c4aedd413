"""Inference graphs that are called without AOTAutograd's wrapper behave as with it."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import assert_same

FUNCTIONS = {
    "plain": lambda x, y: (x + y, x * y),
    "returns_an_input": lambda x, y: (x, x + y),
    "returns_a_view_of_an_input": lambda x, y: (x.t(), x + y),
    "returns_views_of_a_result": lambda x, y: ((z := x + y), z[1:], z.view(-1)),
    "writes_an_input": lambda x, y: (x.add_(1), y * 2),
    "writes_through_a_view": lambda x, y: (x[0].mul_(3), x + y),
    "returns_a_size": lambda x, y: (x + y, x.shape[0]),
    "returns_none": lambda x, y: (None, x + y),
    "single": lambda x, y: x + y,
    "nested": lambda x, y: {"a": [x + y, (x - y,)]},
    "reads_only_one": lambda x, y: (y.exp(),),
}


@pytest.mark.parametrize("same", [False, True], ids=["", "same_argument_twice"])
@pytest.mark.parametrize("dynamic", [None, True], ids=["", "dynamic"])
@pytest.mark.parametrize("options", [{}, {"disabled_ops": ["aten.add", "aten.exp"]}], ids=["", "parts_in_eager"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_arguments_are_as_in_eager(name, options, dynamic, same):
    function = FUNCTIONS[name]

    def arguments():
        x = torch.arange(12.0).view(3, 4)
        return (x, x) if same else (x, torch.ones(3, 4))

    compiled = torch.compile(
        lambda *args: function(*args), backend="turbine_lite_cpu", dynamic=dynamic, options=options
    )
    for _ in range(2):
        mine, theirs = arguments(), arguments()
        got, want = compiled(*mine), function(*theirs)
        assert_same(got, want)
        assert_same(mine, theirs)
        if name == "returns_an_input":
            assert got[0] is mine[0]
        if name == "returns_views_of_a_result":
            assert len({t.untyped_storage().data_ptr() for t in got}) == 1


@pytest.mark.parametrize("options", [{}, {"disabled_ops": ["aten.addmm"]}], ids=["", "in_eager"])
def test_autocast_and_parameters(options):
    model = torch.nn.Linear(8, 4)
    compiled = torch.compile(model, backend="turbine_lite_cpu", options=options)
    x = torch.randn(3, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert_same(compiled(x), model(x), rtol=2e-2, atol=1e-2)
    with torch.inference_mode():
        assert_same(compiled(x), model(x))
    assert compiled(x).requires_grad
