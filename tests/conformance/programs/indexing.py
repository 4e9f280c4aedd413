"""Advanced indexing."""

from __future__ import annotations

import torch

from tests.conformance.programs.harness import flags, ints, normal, program

FAMILY = "indexing"


@program(FAMILY, inputs=lambda: (normal(4, 5), torch.tensor([3, 0, -1])))
def rows_by_tensor(x, index):
    return x[index] * 2, x[:, index], x[index][:, index]


@program(
    FAMILY,
    inputs=lambda: (normal(4, 5, 3), torch.tensor([3, 0]), torch.tensor([[1], [-2]])),
    eager={"region": "not-lowered"},
)
def several_index_tensors(x, i, j):
    return x[i, j], x[i, j, 0], x[i, j, j], x[i.unsqueeze(1), j]


@program(FAMILY, inputs=lambda: (normal(4, 5, 3, 2), torch.tensor([2, 0]), torch.tensor([1, -1])))
def index_tensors_apart(x, i, j):
    return x[i, :, j], x[:, i, :, j - 1], x[i, 1:3, j]


@program(FAMILY, inputs=lambda: (normal(4, 5), torch.tensor([3, 0, 0])))
def none_and_ellipsis(x, i):
    return x[None, i], x[i, None], x[..., i, None], x[None, ..., None] + 1, x[i, ..., 1:]


@program(
    FAMILY,
    inputs=lambda: (normal(4, 5), [2, 0, 1]),
    eager={"aten.index.Tensor": "data-dependent", "aten.lift_fresh_copy.default": "not-lowered", "region": "layout"},
)
def python_lists(x, rows):
    return x[rows], x[[0, 1], [2, 3]], x[:, [True, False, True, False, True]]


@program(FAMILY, inputs=lambda: (normal(5, 3), torch.tensor(2), ints(2, 2, 2, low=-5, high=5)))
def ranks_of_index(x, scalar, cube):
    return x[cube], x[cube[0], cube[1] % 3], x.index_select(1, scalar) + x[0, 0]


@program(
    FAMILY,
    inputs=lambda: (normal(4, 5), ints(3, low=0, high=4, dtype=torch.int32)),
    eager={"aten.index.Tensor": "not-lowered"},
)
def int32_index(x, i):
    return x[i] + 1, x.index_select(0, i)


@program(
    FAMILY,
    inputs=lambda: (normal(4, 5), flags(4, 5)),
    eager={
        "aten.index.Tensor": "data-dependent",
        "aten.index_put.default": "data-dependent",
        "aten.mul.Tensor": "data-dependent",
        "region": "layout",
    },
)
def mask_assignment(x, p):
    y = x.clone()
    y[p] = 0.0
    y[~p] *= 2
    return y


@program(FAMILY, inputs=lambda: (normal(4, 5), torch.tensor([True, False, True, True])), breaks=True)
def rows_by_mask(x, p):
    return (x * 2)[p] + 1, x[p, 1].sum()


@program(FAMILY, inputs=lambda: (normal(4, 5), torch.tensor([[0, 1], [2, 3]]), normal(2, 2, 5)))
def assignment_by_index(x, i, values):
    x[i] = values
    x[i[0], i[1]] += 1.0
    return x * 1.0


@program(FAMILY, inputs=lambda: (ints(4, 5), torch.tensor([3, 0]), flags(4)))
def integers_by_index(n, i, p):
    return n[i] + 1, torch.where(p[:, None], n, 0)[i], p[i]


@program(FAMILY, inputs=lambda: (normal(4, 4), torch.arange(4)))
def index_of_transposed(x, i):
    return x.t()[i, i], x.t()[i.flip(0)], x[i, i.flip(0)].prod()


@program(FAMILY, inputs=lambda: (normal(3, 6), torch.zeros(0, dtype=torch.int64)))
def empty_index(x, i):
    return x[i], x[:, i], x.index_select(1, i).sum(1)


@program(FAMILY, inputs=lambda: (normal(4, 5), torch.tensor([3, 0, -1, 3]), torch.tensor([1, 1, 0, 1])), grad=True)
def grad_of_index(x, i, j):
    return x[i] * 2, x[i, j].exp(), x[:, j]


@program(FAMILY, inputs=lambda: (normal(4, 5, 6), torch.tensor([3, 0, -1]), torch.tensor([1, 1, 0]), normal(3, 5)))
def assignment_by_index_apart(x, i, j, values):
    y = x.clone()
    y[i, :, j] = values
    x[i, :, j] += 1.0
    return x * 1.0, y
