"""Indices out of range: eager's error and no write outside of a tensor; negative ones as eager takes them."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.helpers import assert_same, compiled

X = torch.arange(12.0).view(4, 3)
ONES = torch.ones(2, 3)

# Each takes a tensor of two indices into a dimension of size 4.
PROGRAMS = {
    "index": lambda x, i: x[i] + 1,
    "index of two dimensions": lambda x, i: x[i, torch.tensor([0, 2])],
    "index_put": lambda x, i: x.index_put((i,), ONES),
    "index_put accumulate": lambda x, i: x.index_put((i,), ONES, accumulate=True),
    "setitem": lambda x, i: _set(x, i),
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(2, 3)),
    "scatter": lambda x, i: x.scatter(0, i[:, None].expand(2, 3), ONES),
    "scatter of a number": lambda x, i: x.scatter(0, i[:, None].expand(2, 3), 7.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None].expand(2, 3), ONES),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None].expand(2, 3), ONES, "amax"),
    "index_add": lambda x, i: x.index_add(0, i, ONES),
    "index_copy": lambda x, i: x.index_copy(0, i, ONES),
    "index_fill": lambda x, i: x.index_fill(0, i, 3.0),
    "take": lambda x, i: x[:, 0].take(i),
    "embedding": lambda x, i: F.embedding(i, x),
    "cross_entropy": lambda x, i: F.cross_entropy(x.t()[:2], i),
}
NEGATIVE = {"index", "index of two dimensions", "index_put", "index_put accumulate", "setitem", "take"}


def _set(x, i):
    y = x.clone()
    y[i] = 5.0
    return y


def run_of(name, dynamic):
    """The compiled program; ``dynamic``: for any size of the dimension that is indexed."""
    x = X.clone()
    if dynamic:
        torch._dynamo.mark_dynamic(x, 0)
    in_eager = dynamic and name == "scatter_reduce"  # see graph/known_wrong.py
    run = compiled(lambda x, i: PROGRAMS[name](x, i), fallback="eager" if in_eager else "error")
    return lambda i: run(x, i)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_range(name, dynamic):
    run = run_of(name, dynamic)
    for numbers in ((0, 3), (2, 1), (-1, -4) if name in NEGATIVE else (3, 0)):
        i = torch.tensor(numbers)
        assert_same(run(i), PROGRAMS[name](X, i))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("bad", [4, -5, 10**12])
@pytest.mark.parametrize("name", PROGRAMS)
def test_out_of_range(name, bad, dynamic):
    run = run_of(name, dynamic)
    i = torch.tensor([1, bad])
    with pytest.raises((IndexError, RuntimeError)):
        PROGRAMS[name](X, i)
    with pytest.raises((IndexError, RuntimeError), match=r"out of|bound|range"):
        run(i)
    assert_same(run(torch.tensor([0, 1])), PROGRAMS[name](X, torch.tensor([0, 1])))  # and it goes on


def test_a_constant_out_of_range():
    with pytest.raises(IndexError):
        torch.compile(lambda x: x[torch.tensor([0, 9])] + 1, backend="turbine_lite_cpu")(X)


def test_negative_indices_that_an_operator_does_not_take():
    run = compiled(lambda i: F.embedding(i, X))
    with pytest.raises((IndexError, RuntimeError)):
        run(torch.tensor([0, -1]))


def test_in_training():
    weight = torch.randn(4, 3, requires_grad=True)
    run = compiled(lambda w, i: F.embedding(i, w).square().sum())
    run(weight, torch.tensor([1, 3, 1])).backward()
    want = torch.zeros(4, 3)
    want[1], want[3] = 4 * weight.detach()[1], 2 * weight.detach()[3]
    torch.testing.assert_close(weight.grad, want)
    with pytest.raises(IndexError):
        run(weight, torch.tensor([1, 4, 1]))


def test_dynamic_number_of_indices():
    run = torch.compile(lambda x, i: x[i] * 2, backend="turbine_lite_cpu", options={"fallback": "error"})
    for n in (3, 5, 8):
        i = torch.arange(n) % 4
        torch._dynamo.mark_dynamic(i, 0)
        assert_same(run(X, i), X[i] * 2)
    with pytest.raises(IndexError):
        run(X, torch.arange(8))


@pytest.mark.parametrize("size", [[6, 8], [5, 11], [3, 4], [3, 2]], ids=str)
def test_upsampling_whose_scale_contradicts_its_size(size):
    x = torch.randn(1, 2, 3, 4).to(memory_format=torch.channels_last)

    def program(x):
        upsample = torch.ops.aten.upsample_nearest2d
        return upsample(x, size, 1.0, 0.5), upsample.default(x, size, None, 3.0), upsample(x, size)

    assert_same(compiled(program)(x), program(x))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("size", [6, 12, 9], ids=str)
def test_upsampling_called_by_its_internal_name(size, dynamic):
    """One and three dimensions look at a scale that two dimensions do not look at."""
    x = torch.arange(72.0).reshape(1, 2, 6, 6)

    def program(x):
        nn = torch._C._nn
        return (
            nn.upsample_nearest1d(x[0], [size], 2.3),
            nn.upsample_nearest2d(x, output_size=[size, 6], scales_h=2.3, scales_w=4.7),
            nn.upsample_nearest3d(x[None], [2, size, 7], 1.5, 2.3, 4.7),
            nn.upsample_nearest2d(x, None, [1.5, 2.0]),
        )

    run = torch.compile(program, backend="turbine_lite_cpu", dynamic=dynamic)
    assert_same(run(x), program(x))
