"""Stand-ins for tensors that are written into."""

from __future__ import annotations

import torch
from torch._functorch.compile_utils import fx_graph_cse
from torch.fx.experimental.proxy_tensor import make_fx

from turbine_lite.graph.write_targets import keep_targets_apart

aten = torch.ops.aten


def count(graph: torch.fx.Graph, target: object) -> int:
    return sum(node.target is target for node in graph.nodes)


def test_no_two_stand_ins_are_equal():
    # A merged stand-in is shared memory again: gradients of a rotary embedding were wrong by a thousandth.
    def program(x, i):
        return [torch.zeros_like(x).index_add(0, i, x * factor) for factor in (1, 2, 3)]

    gm = make_fx(program, tracing_mode="fake")(torch.rand(4, 3), torch.tensor([1, 0, 1, 3]))
    keep_targets_apart(gm.graph)
    assert count(gm.graph, aten.masked_fill.Scalar) == 3
    assert count(fx_graph_cse(gm.graph), aten.masked_fill.Scalar) == 3
