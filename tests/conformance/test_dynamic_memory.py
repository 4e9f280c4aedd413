"""Programs over dynamic sizes that IREE got wrong without a word; flags or rewrites keep them right."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import assert_same


def check(function, *args):
    run = torch.compile(function, backend="turbine_lite_cpu", dynamic=True, options={"fallback": "error"})
    assert_same(run(*args), function(*args), rtol=1e-3, atol=1e-3)


FILLS = {
    "zeros_like": torch.zeros_like,
    "zeros": lambda x: torch.zeros(x.shape),
    "full": lambda x: torch.full((x.shape[0],), 3.0),
    "viewed": lambda x: torch.zeros(1, x.shape[0]).view(-1),
}
WRITES = {
    "scatter_add": lambda x, i, s: x.scatter_add(0, i, s),
    "index_put": lambda x, i, s: x.index_put((i,), s, accumulate=True),
    "index_add": lambda x, i, s: x.index_add(0, i, s),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("fill", FILLS)
def test_two_writes_into_equal_fills_do_not_share_memory(fill, write):
    def program(x, i, s):
        return WRITES[write](FILLS[fill](x), i, s), WRITES[write](FILLS[fill](x), i, s * 2)

    check(program, torch.randn(6), torch.tensor([0, 1, 1, 3]), torch.tensor([1.0, 10.0, 100.0, 1000.0]))


def test_scatters_from_one_tensor():
    def program(x, i, s):
        y = x.exp()
        return y.scatter_add(0, i, s), y.index_put((i,), s), y.scatter_add(0, i, s * 2), y

    check(program, torch.randn(6), torch.tensor([0, 1, 1, 3]), torch.randn(4))


@pytest.mark.parametrize("n", [128, 37])
def test_batched_matmul_of_four_dimensions(n):
    def program(p, v):
        return (p.softmax(-1) @ v).permute(0, 2, 1, 3).reshape(p.shape[0], p.shape[2], -1), p @ v

    check(program, torch.rand(2, 12, n, n), torch.rand(2, 12, n, 64))


def test_overlapping_pooling_in_training():
    def program(x):
        pool = torch.nn.functional.max_pool2d
        return pool(x, 3, 2, 1).square().sum() + pool(x, 2, 1).sum()

    x = torch.randn(2, 3, 9, 8)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    torch.compile(program, backend="turbine_lite_cpu", dynamic=True)(a).backward()
    program(b).backward()
    assert_same(a.grad, b.grad)


def test_scatter_reduce_of_a_slice_in_training():
    def program(x, i, v, w):
        source = v[:, 0]
        amax = x.scatter_reduce(0, i, source, "amax", include_self=False)
        return amax, x.scatter_reduce(0, i, source, "sum"), torch.nn.functional.embedding(i, w)

    def leaves():
        torch.manual_seed(0)
        return [torch.randn(*shape).requires_grad_() for shape in ((5,), (6, 4), (7, 3))]

    i = torch.tensor([0, 3, 3, 1, 3, 0])
    results = []
    for run in (program, torch.compile(program, backend="turbine_lite_cpu", dynamic=True)):
        x, v, w = leaves()
        got = run(x, i, v, w)
        sum(result.sum() for result in got).backward()
        results.append([*(result.detach() for result in got), x.grad, v.grad, w.grad])
    assert_same(results[1], results[0])


def test_gradients_of_slices_do_not_share_memory():
    def program(x):
        return x[:, 0].exp().sum() + x[:, 1].sin().sum() + x[1:3].square().sum() + x[:2, 1:].tanh().sum()

    a = torch.randn(6, 4, requires_grad=True)
    b = a.detach().clone().requires_grad_()
    torch.compile(program, backend="turbine_lite_cpu", dynamic=True)(a).backward()
    program(b).backward()
    assert_same(a.grad, b.grad)


def test_sums_of_many_numbers():
    def program(x):
        return x.sum((0, 1)), x.mean(1), x.var((0, 1)), x.sum(), x.std((0, 1), correction=0), torch.var_mean(x, (0, 1))

    run = torch.compile(program, backend="turbine_lite_cpu", dynamic=True, options={"fallback": "error"})
    for shape in ((1000, 4096, 2), (30, 200, 2)):
        x = torch.rand(shape) + 100
        assert_same(run(x), program(x))


def test_views_that_are_no_pairs_of_sizes():
    """torch-mlir pairs s0 with 1 and s1 with s0 * s1, and leaves the rest of the result unwritten."""

    def program(x):
        rows = x.view(1, -1, 5, 5)
        return x * x.square().mean(-1, keepdim=True), rows - rows.mean((0, 2, 3), keepdim=True)

    check(program, torch.randn(2, 4, 5, 5))


VIEWS = {
    "inner": ((2, 4, 6), lambda x: x.view(4, -1, 6)),
    "swapped": ((3, 4, 6), lambda x: x.view(x.shape[1], x.shape[0], -1)),
    "split": ((2, 6, 8), lambda x: x.view(x.shape[0], 2, 3, -1)),
    "flat and split": ((2, 6, 8), lambda x: x.view(-1, 8).view(3, -1, 8)),
    "half": ((4, 6, 5), lambda x: x.view(x.shape[0] // 2, 2, x.shape[1], 5)),
    "one moved back": ((1, 6, 5), lambda x: x.view(-1, 1, 5)),
    "one moved forward": ((6, 1, 5), lambda x: x.view(1, -1, 5)),
    "heads": ((2, 3, 4, 5), lambda x: x.permute(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)),
    "one between": ((2, 3, 4, 5), lambda x: x.reshape(x.shape[0] * x.shape[1], 1, x.shape[2], 5)),
    "unflatten": ((6, 4), lambda x: x.unflatten(0, (2, -1))),
    "ones": ((3, 4), lambda x: x.view(1, x.shape[0], 1, -1, 1)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_dynamic_sizes(name):
    shape, view = VIEWS[name]
    run = torch.compile(lambda x: view(x * 2) + 1, backend="turbine_lite_cpu", dynamic=True)
    for first in (shape[0], shape[0] * 2):
        x = torch.randn(first, *shape[1:])
        assert_same(run(x), view(x * 2) + 1)
