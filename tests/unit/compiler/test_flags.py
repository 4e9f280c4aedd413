"""The sets of flags that are tried one after the other."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import nn

from tests.helpers import NATIVE, assert_same
from turbine_lite.compiler.flags import Traits, flag_sets
from turbine_lite.options import Options


def test_a_dispatch_without_a_bound_on_its_stack_is_compiled_unfused():
    # With the limit off, the backward graph asks for 2^56 bytes of stack and the process dies of SIGBUS.
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, backend="turbine_lite_cpu", dynamic=True, options=NATIVE)
    for rows in (5, 7):
        x = torch.randn(rows, 6)
        want, got = model(x), compiled(x)
        assert_same(got, want)
        want.square().sum().backward()
        got.square().sum().backward()
        for mine, theirs in zip(twin.parameters(), model.parameters(), strict=True):
            assert_same(mine.grad, theirs.grad, atol=1e-4)


def test_all_sizes_of_a_batch_norm_may_be_dynamic():
    # With aggressive fusion the program writes beyond its results: "double free or corruption".
    def train(x, weight, bias, mean, variance):
        return torch.ops.aten.native_batch_norm(x, weight, bias, mean, variance, True, 0.1, 1e-5)

    arguments = [torch.rand(10, 4, 2, 2), *(torch.rand(4) for _ in range(4))]
    for tensor in arguments:
        for dim in range(tensor.dim()):
            torch._dynamo.maybe_mark_dynamic(tensor, dim)
    want = train(*(tensor.clone() for tensor in arguments))
    assert_same(torch.compile(train, backend="turbine_lite_cpu", options=NATIVE)(*arguments), want)


@pytest.mark.parametrize("traits", [Traits(*values) for values in itertools.product([False, True], repeat=2)])
def test_no_set_lifts_the_stack_limit(traits):
    for flags in flag_sets(Options(), traits):
        assert not [f for f in flags.command_line() if f.startswith("--iree-llvmcpu-fail-on-out-of-bounds-stack")]
