from __future__ import annotations

import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from tests.helpers import assert_same
from turbine_lite.graph.partition import Partitioned, partition
from turbine_lite.graph.support import reason_for, why_not

aten = torch.ops.aten


def trace(function, *args) -> GraphModule:
    return make_fx(function, tracing_mode="fake")(*args)


def split(function, *args, eager=()) -> Partitioned:
    def reason(node):
        return reason_for(node, "disabled", "test") if node.target in eager else why_not(node)

    return partition(trace(function, *args), reason)


def test_one_region_when_all_is_supported():
    x = torch.randn(3)
    parts = split(lambda x: (x + 1) * 2, x)
    assert list(parts.regions) == ["region_0"]
    assert_same(parts.outer(x), (x + 1) * 2)


def test_an_unsupported_node_in_a_chain_gives_two_regions():
    x = torch.randn(3)

    def function(x):
        return torch.sin(x + 1).exp() * 2

    parts = split(function, x, eager=(aten.sin.default,))
    assert len(parts.regions) == 2
    assert [reason.op for reason in parts.reasons] == ["aten.sin.default"]
    assert_same(parts.outer(x), function(x))


def test_independent_unsupported_nodes_do_not_add_regions():
    x = torch.randn(3)

    def function(x):
        a = torch.sin(x) + 1
        b = torch.sin(x * 1) + 2
        return (a * b).exp()

    parts = split(function, x, eager=(aten.sin.default,))
    assert len(parts.regions) == 2  # x * 1, then all the rest
    assert_same(parts.outer(x), function(x))


def test_dropout_masks_cut_nothing():
    x = torch.randn(4, 4)

    def function(x):
        for _ in range(3):
            mask = aten.bernoulli.p(torch.empty_strided(x.shape, x.stride()), 0.5)
            x = torch.exp(x * mask)
        return x

    parts = split(function, x)
    assert len(parts.regions) == 1
    torch.manual_seed(0)
    want = function(x)
    torch.manual_seed(0)
    assert_same(parts.outer(x), want)


def test_random_numbers_are_drawn_in_the_order_of_the_program():
    x = torch.randn(4)

    def function(x):
        a = aten.bernoulli.p(x.exp(), 0.5)  # waits for a region
        b = aten.bernoulli.p(x, 0.5)  # does not, and must not overtake
        return a + 2 * b

    parts = split(function, x)
    torch.manual_seed(3)
    want = function(x)
    torch.manual_seed(3)
    assert_same(parts.outer(x), want)


def test_regions_of_views_only_are_dropped():
    parts = split(lambda x: torch.sin(x.t()).t(), torch.randn(2, 3), eager=(aten.sin.default,))
    assert parts.regions == {}


def test_the_original_graph_is_left_alone():
    gm = trace(lambda x: (x + 1).t(), torch.randn(2, 3))
    before = gm.code
    partition(gm, why_not)
    assert gm.code == before


def test_a_write_waits_for_readers_and_is_seen_after():
    x = torch.zeros(3)

    def function(x):
        before = x + 1
        aten.add_.Scalar(x, 5)
        return before, aten.sin.default(x)

    parts = partition(trace(function, x), why_not)
    mine, theirs = torch.zeros(3), torch.zeros(3)
    assert_same(parts.outer(mine), function(theirs))
    assert_same(mine, theirs)
