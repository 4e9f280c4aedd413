"""Writes of a part of a tensor into that tensor, which IREE does in place: eager's values, natively."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import assert_same, compiled


def shift_rows(x):
    x[1:] = x[:-1].clone()
    return x


def shift_columns(x):
    x = x * 1.5
    x[:, 1:] = x[:, :-1].clone()
    return x


def copy_and_shift(x):
    y = x.clone()
    y[1:] = x[:-1]
    return y


def swap_rows(x):
    x[0], x[1] = x[1].clone(), x[0].clone()
    return x


def every_other(x):
    x[:, ::2] = x[:, 1::2]
    return x


def relax(x):
    x = x.clone()
    for _ in range(3):
        x[1:] = x[1:] - 0.5 * (x[1:] - x[:-1])
        x[0] = x[-1]
    return x


def recur(x):
    for t in range(1, 6):
        x[t] = torch.tanh(x[t - 1] @ x.T + x[t])
    return x


def heat(x):
    for _ in range(3):
        x[1:-1, 1:-1] = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
    return x


PROGRAMS = {
    "relax": relax,
    "recur": recur,
    "heat": heat,
    "shift rows": shift_rows,
    "shift columns": shift_columns,
    "copy and shift": copy_and_shift,
    "swap rows": swap_rows,
    "every other": every_other,
    "slice": lambda x: torch.slice_scatter(x, x[:, :-1], 1, 1, 64),
    "slice and base": lambda x: (torch.slice_scatter(x * 2, (x * 2)[:2], 0, 1, 3), x * 2),
    "transposed": lambda x: torch.slice_scatter(x, x.T[:3], 0, 1, 4),
    "flipped": lambda x: torch.slice_scatter(x, x.flip(0)[:4], 0, 1, 5),
    "column into row": lambda x: torch.select_scatter(x, x[:, 0], 0, 1),
    "row into diagonal": lambda x: torch.diagonal_scatter(x, x[0]),
    "sum into row": lambda x: torch.select_scatter(x, x.sum(0), 0, 1),
    "running sum": lambda x: torch.slice_scatter(x, x.cumsum(0)[:3], 0, 1, 4),
    "index_add": lambda x: x.index_add(1, torch.tensor([1, 0, 2, 3, 5, 4]), x),
    "index_copy": lambda x: x.index_copy(1, torch.tensor([1, 0, 2, 3, 5, 4]), x),
    "index_put": lambda x: x.index_put((torch.tensor([1, 0]),), x[2:4]),
    "put": lambda x: x.put(torch.arange(36).flip(0), x),
    "scatter": lambda x: x.scatter(1, torch.arange(6).flip(0).expand(6, 6), x),
    "itself": lambda x: x.slice_scatter(x, 0),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_part_of_a_tensor_written_into_it(name, dynamic):
    program = PROGRAMS[name]
    x = torch.randn(6, 6)
    got = x.clone()
    # IREE cannot compile one of them over dynamic sizes.
    fallback = "eager" if dynamic and name == "relax" else "error"
    run = torch.compile(program, backend="turbine_lite_cpu", dynamic=dynamic, options={"fallback": fallback})
    result = run(got)
    want = x.clone()
    assert_same(result, program(want))
    assert_same(got, want)


def test_large_ranges_that_overlap():
    x = torch.randn(512, 64)
    assert_same(compiled(copy_and_shift)(x), copy_and_shift(x))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float64, torch.bfloat16])
def test_of_other_dtypes(dtype):
    x = (torch.randn(6, 6) * 3).to(dtype)

    def program(x):
        y = x.clone()
        y[1:] = x[:-1]
        return y, torch.slice_scatter(x, x[:, :-1], 1, 1, 6)

    assert_same(compiled(program)(x), program(x))


def test_indices_that_are_the_target():
    x = torch.tensor([2, 0, 1])

    def program(x):
        return x.scatter(0, x, x), x.index_put((x,), torch.tensor(7)), x.index_add(0, x, x)

    assert_same(compiled(program)(x), program(x))


def begin_alike(join):
    def program(a, b):
        y = a * b
        z = y * b
        return join([z, z * a]), join([z, y]), join([z, y + 1]), join([y, y]), join([a, y]), join([a, z])

    return program


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("join", [torch.cat, torch.stack, lambda t: torch.cat(t, 1), lambda t: torch.stack(t, -1)])
def test_concatenations_that_begin_with_the_same_tensor(join, dynamic):
    program = begin_alike(join)
    a, b = torch.randn(2, 5), torch.randn(2, 5)
    run = torch.compile(program, backend="turbine_lite_cpu", dynamic=dynamic, options={"fallback": "error"})
    assert_same(run(a, b), program(a, b))
    weight = torch.ones(program(a, b)[0].shape[-1], 3)
    sums = torch.compile(lambda a, b: [t @ weight for t in program(a, b)], backend="turbine_lite_cpu", dynamic=dynamic)
    assert_same(sums(a, b), [t @ weight for t in program(a, b)])


@pytest.mark.parametrize("cell", [torch.nn.GRUCell(4, 5), torch.nn.RNNCell(4, 5)], ids=["gru", "rnn"])
def test_gradients_of_unrolled_cells(cell):
    """The gradients of a GRU's gates are two concatenations that begin alike."""

    def unrolled(x):
        h = torch.zeros(2, 5)
        for t in range(3):
            h = cell(x[:, t], h)
        return (h * torch.linspace(0.5, 1.5, 5)).sum()

    x = torch.randn(2, 3, 4, requires_grad=True)
    (want,) = torch.autograd.grad(unrolled(x), x)
    (got,) = torch.autograd.grad(torch.compile(unrolled, backend="turbine_lite_cpu")(x), x)
    assert_same(got, want)


FILLS = {
    "ones": lambda x, i: (torch.ones_like(x).scatter_add(0, i, x), torch.ones_like(x).scatter_add(0, i, 2 * x)),
    "source is like the target": lambda x, i: (
        torch.ones_like(x).scatter_add(0, i, x),
        torch.ones_like(x).scatter_add(0, i, torch.ones_like(x)),
    ),
    "zeros": lambda x, i: (torch.zeros_like(x).scatter_add(0, i, x), torch.zeros_like(x).index_add(0, i[:, 0], x)),
    "transposed": lambda x, i: (x.scatter_reduce(0, i, x, "mean"), x.t().scatter_reduce(1, i.t(), x.t(), "mean")),
    "full": lambda x, i: (torch.full_like(x, 3).scatter(0, i[:1], x), torch.full_like(x, 3).scatter(0, i[1:2], x)),
    "integers": lambda x, i: (torch.ones_like(i).scatter_add(0, i, i), torch.ones_like(i).scatter_add(0, i, i * i)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FILLS)
def test_writes_into_equal_fills(name, dynamic):
    x, i = torch.randn(6, 3), torch.randint(0, 6, (6, 3))
    run = torch.compile(FILLS[name], backend="turbine_lite_cpu", dynamic=dynamic)
    assert_same(run(x, i), FILLS[name](x, i))
