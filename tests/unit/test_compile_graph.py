"""What becomes of a graph that does not run in IREE as a whole."""

from __future__ import annotations

import operator

import pytest
import torch

from tests.helpers import assert_same
from turbine_lite import compile_graph
from turbine_lite.errors import CompilationError


@pytest.mark.parametrize("stage", ["lower", "compile"])
def test_blame_for_an_item_of_a_result_comes_to_an_end(stage, monkeypatch):
    """An item follows its producer, so compiling again without the item is compiling the same once more."""

    def fail(region, options, dump):
        item = next(node for node in region.graph.nodes if node.target is operator.getitem)
        raise CompilationError("refused", stage=stage, diagnostics=f"fx/{item.name}:0:0: error: refused")

    def function(x):
        return x.exp().split(2)[0] * 2, x.sin().split(2)[1] + 1

    monkeypatch.setattr(compile_graph, "compile_region", fail)
    x = torch.rand(4)
    assert_same(torch.compile(function, backend="turbine_lite_cpu")(x), function(x))


def test_the_first_call_of_a_complex_graph():
    """AOTAutograd's watch over first calls makes PyTorch lose a conjugation."""
    x = torch.randn(4, 4, dtype=torch.complex128)
    run = torch.compile(lambda x: torch.linalg.pinv(x), backend="turbine_lite_cpu")
    for _ in range(2):
        torch.testing.assert_close(run(x), torch.linalg.pinv(x))
