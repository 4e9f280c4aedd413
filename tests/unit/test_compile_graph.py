"""What becomes of a graph that does not run in IREE as a whole."""

from __future__ import annotations

import operator
import threading

import pytest
import torch
from torch._dynamo.utils import counters

from tests.helpers import assert_same
from turbine_lite import compile_graph
from turbine_lite.compiler import cached, client
from turbine_lite.errors import CompilationError


@pytest.mark.parametrize("stage", ["lower", "compile"])
def test_blame_for_an_item_of_a_result_comes_to_an_end(stage, monkeypatch, caplog):
    """An item follows its producer, so compiling again without the item is compiling the same once more."""

    def fail(region, options, dump, **rest):
        item = next(node for node in region.graph.nodes if node.target is operator.getitem)
        raise CompilationError(f"no {stage}", stage=stage, diagnostics=f"fx/{item.name}:0:0: error: no {stage}")

    def function(x):
        return x.exp().split(2)[0] * 2, x.sin().split(2)[1] + 1

    monkeypatch.setattr(compile_graph, "RegionBuild", fail)
    x = torch.rand(4)
    assert_same(torch.compile(function, backend="turbine_lite_cpu")(x), function(x))
    assert any(f"no {stage}" in message for message in caplog.messages)


def test_the_first_call_of_a_complex_graph():
    """AOTAutograd's watch over first calls makes PyTorch lose a conjugation."""
    x = torch.randn(4, 4, dtype=torch.complex128)
    run = torch.compile(lambda x: torch.linalg.pinv(x), backend="turbine_lite_cpu")
    for _ in range(2):
        torch.testing.assert_close(run(x), torch.linalg.pinv(x))


def test_regions_compile_at_the_same_time(monkeypatch):
    """Each compilation waits for the other one to have begun."""
    real = cached.compile_to_vmfb
    meeting = threading.Barrier(2, timeout=60)

    def compile_with_another(*args):
        meeting.wait()
        return real(*args)

    monkeypatch.setattr(cached, "compile_to_vmfb", compile_with_another)
    monkeypatch.setattr(client, "most_at_once", lambda: 2)

    def function(x):
        return torch.special.airy_ai((x * 2.5).sin() + 1).cos() * 3.5 + x

    x = torch.rand(6)
    options = {"min_block_size": 1, "cache": False}
    assert_same(torch.compile(function, backend="turbine_lite_cpu", options=options)(x), function(x))
    assert counters["turbine_lite"]["executables"] == 2
    assert not meeting.broken
