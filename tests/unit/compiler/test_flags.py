"""The sets of flags that are tried one after the other."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tests.helpers import NATIVE, assert_same
from turbine_lite.compiler.flags import flag_sets
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


@pytest.mark.parametrize("keep_f64", [False, True])
def test_no_set_lifts_the_stack_limit(keep_f64):
    for flags in flag_sets(Options(), keep_f64=keep_f64):
        assert not [f for f in flags.command_line() if f.startswith("--iree-llvmcpu-fail-on-out-of-bounds-stack")]
