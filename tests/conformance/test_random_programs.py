"""Random programs against eager: results, dtypes, shapes, strides, and the arguments afterwards."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, reject, settings

from tests.conformance.random_programs import PROGRAMS, Program, arguments
from tests.helpers import assert_same

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom")

_SETTINGS = settings(
    deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck), print_blob=False
)


def _clone(tensors):
    return [t.as_strided(t.shape, t.stride()).clone(memory_format=torch.preserve_format) for t in tensors]


def check(program: Program, tensors: list[torch.Tensor], *, dynamic: bool) -> None:
    torch._dynamo.reset()
    want_arguments, got_arguments = _clone(tensors), _clone(tensors)
    try:
        want = program(*want_arguments)
    except RuntimeError:  # what eager refuses, such as the difference of two booleans
        reject()
    run = torch.compile(program.__call__, backend="turbine_lite_cpu", dynamic=dynamic, fullgraph=True)
    got = run(*got_arguments)
    assert_same(got, want, rtol=1e-3, atol=1e-3)
    assert_same(got_arguments, want_arguments, rtol=1e-3, atol=1e-3)


@settings(_SETTINGS, max_examples=30)
@given(PROGRAMS, arguments())
def test_some(program, tensors):
    check(program, tensors, dynamic=False)


@settings(_SETTINGS, max_examples=15)
@given(PROGRAMS, arguments())
def test_some_of_dynamic_sizes(program, tensors):
    check(program, tensors, dynamic=True)


@pytest.mark.full
@pytest.mark.parametrize("dynamic", [False, True])
def test_many(dynamic):
    @settings(_SETTINGS, max_examples=1500)
    @given(PROGRAMS, arguments())
    def run(program, tensors):
        check(program, tensors, dynamic=dynamic)

    run()
