"""Slices, writes into views, scatters and gathers."""

from __future__ import annotations

import torch

from tests.conformance.programs.harness import flags, ints, normal, program

FAMILY = "slicing"


@program(FAMILY, inputs=lambda: (normal(6, 8),))
def slices(x):
    return x[1:4] + 1, x[::2, 1::3] * 2, x[-3:, :-1].exp(), x[5:2].sum(), x[2][3], x[..., 0], x[:, None, 2:20]


@program(FAMILY, inputs=lambda: (normal(5, 6),))
def narrow_and_select(x):
    selected = x.index_select(1, torch.tensor([3, 0, 3]))
    return x.narrow(0, 1, 3) * 2, x.select(1, -2).exp(), selected, x.narrow(1, -2, 2)


@program(
    FAMILY,
    inputs=lambda: (normal(4, 6), normal(4, 2), normal(6), normal(4)),
    eager={"aten.diagonal_scatter.default": "not-lowered"},
)
def functional_writes(x, part, row, diagonal):
    return (
        torch.slice_scatter(x, part, 1, 1, 5, 2),
        torch.select_scatter(x, row, 0, -1),
        torch.diagonal_scatter(x, diagonal, 1),
    )


@program(FAMILY, inputs=lambda: (normal(4, 6), normal(6)))
def write_slices(x, row):
    y = x.clone()
    y[1] = row
    y[2:, ::2] = 0.5
    y[:, -1] += 10
    y[0, 0] = row[1]
    return y


@program(FAMILY, inputs=lambda: (normal(4, 6),), eager={"aten.diagonal_scatter.default": "not-lowered"})
def write_into_views_of_input(x):
    x[1:3].mul_(2)
    x.t()[0].zero_()
    x.diagonal().add_(1)
    x.view(-1)[-1] = 7.0
    return x.sum()


@program(FAMILY, inputs=lambda: (normal(4, 4), flags(4, 4)), eager={"aten.index_put.default": "not-lowered"})
def write_through_chain_of_views(x, p):
    view = x.view(2, 2, 4).transpose(0, 1)[1]
    view.fill_(2.0)
    rows = x[::2]
    rows[p[::2]] = -1.0
    return view + 1, x.clone()


@program(FAMILY, inputs=lambda: (normal(3, 4), flags(3, 4), normal()))
def masked_fills(x, p, value):
    return x.masked_fill(p, 0.0), x.masked_fill(p[0], float("-inf")), x.masked_fill(~p, value), torch.where(p, x, -x)


@program(FAMILY, inputs=lambda: (normal(3, 4), flags(3, 4)))
def masked_fill_in_place(x, p):
    x.masked_fill_(p, 9.0)
    return x.clamp_(max=1.0)


@program(FAMILY, inputs=lambda: (normal(3, 4), flags(3, 4), normal(12)))
def masked_scatter(x, p, source):
    return x.masked_scatter(p, source) * 2


@program(FAMILY, inputs=lambda: (normal(5, 3), torch.tensor([0, -1, 2]), normal(3, 3)))
def put_rows_at_negative_indices(x, index, rows):
    y = x.clone()
    y[index] = rows
    y[index, torch.tensor([-1, 0, -2])] = 3.0
    return y


@program(FAMILY, inputs=lambda: (normal(5, 3), torch.tensor([0, 2, 0, -5, 2]), normal(5, 3)))
def put_and_accumulate(x, index, rows):
    return x.index_put((index,), rows, accumulate=True), x.index_put((index, index % 3), rows[:, 0], accumulate=True)


@program(FAMILY, inputs=lambda: (ints(5), torch.tensor([0, 1, 1, 1, 4]), torch.ones(5, dtype=torch.int64)))
def put_and_accumulate_integers(x, index, ones):
    return x.index_put((index,), ones, accumulate=True), torch.zeros(5).index_put(
        (index,), ones.float(), accumulate=True
    )


@program(FAMILY, inputs=lambda: (normal(5, 3), torch.tensor([4, 0, 4]), normal(3, 3)))
def index_add_copy_fill(x, index, rows):
    return (
        x.index_add(0, index, rows, alpha=2),
        x.index_copy(0, index[:2], rows[:2]),
        x.index_fill(1, index[1:2], -1.0),
        x.index_add(1, torch.tensor([0, 0]), normal_like(x)[:, :2]),
    )


def normal_like(x):
    return x.sin()


@program(FAMILY, inputs=lambda: (normal(4, 3), torch.tensor([0, 2])))
def index_writes_in_place(x, index):
    x.index_add_(0, index, torch.ones(2, 3))
    x.index_fill_(0, index[:1], 5.0)
    return x.index_copy_(1, index, x[:, :2] * 2)


@program(
    FAMILY,
    inputs=lambda: (normal(3, 5), ints(3, 5, low=0, high=3), normal(3, 5)),
    eager={"aten.sort.stable": "not-importable"},
)
def scatters(x, index, source):
    first = torch.argsort(index, dim=0, stable=True)
    return x.scatter(0, first, source), x.scatter(1, index[:, :1], 2.5), x.scatter_add(0, index, source)


@program(FAMILY, inputs=lambda: (ints(3, 5), ints(3, 5, low=0, high=3), ints(3, 5)))
def scatter_add_integers(x, index, source):
    return x.scatter_add(0, index, source), torch.zeros(3, 5, dtype=torch.int64).scatter_add(0, index, source)


@program(FAMILY, inputs=lambda: (normal(3, 5), ints(3, 5, low=0, high=3), normal(3, 5)))
def scatter_reduces(x, index, source):
    return (
        x.scatter_reduce(0, index, source, "sum"),
        x.scatter_reduce(0, index, source, "prod"),
        x.scatter_reduce(0, index, source, "amax", include_self=False),
        x.scatter_reduce(0, index, source, "amin"),
    )


@program(
    FAMILY,
    inputs=lambda: (normal(3, 5), ints(3, 5, low=0, high=3), normal(3, 5)),
    eager={"aten.scatter_reduce.two": "known-wrong"},
)
def scatter_means(x, index, source):
    mean = x.scatter_reduce(0, index, source, "mean")
    return mean, torch.zeros(3, 5).scatter_reduce(0, index, source, "mean", include_self=False)


@program(
    FAMILY,
    inputs=lambda: (normal(4, 3), torch.tensor([0, 3, 0]), normal(3, 3)),
    eager={"aten.index_reduce.default": "not-importable"},
)
def index_reduces(x, index, rows):
    return x.index_reduce(0, index, rows, "amax"), x.index_reduce(0, index, rows, "prod")


@program(FAMILY, inputs=lambda: (normal(4, 3), torch.tensor([0, 0, 1, 2])))
def one_hot_by_scatter(x, labels):
    target = torch.zeros_like(x).scatter_(1, labels[:, None], 1.0)
    return target, (x.log_softmax(1) * target).sum()


@program(FAMILY, inputs=lambda: (normal(4, 6), ints(4, 3, low=0, high=6), ints(2, 6, low=0, high=4)))
def gathers(x, columns, rows):
    return x.gather(1, columns), x.gather(0, rows) * 2, torch.take_along_dim(x, columns, 1), x.take(rows)


@program(FAMILY, inputs=lambda: (normal(4, 6),), eager={"aten.sort.stable": "not-importable"})
def take_along_sorted(x):
    order = torch.argsort((x * 3).round().long(), dim=1, stable=True)
    return torch.take_along_dim(x, order, dim=1), x.gather(1, order.argsort(1))


@program(
    FAMILY,
    inputs=lambda: (normal(4, 6), torch.tensor([5, -1, 0]), normal(3)),
    eager={"aten.put.default": "not-importable"},
)
def flat_put(x, index, values):
    return x.put(index, values), x.put(index, values, accumulate=True)


@program(FAMILY, inputs=lambda: (normal(6),))
def write_overlapping_copy(x):
    y = x.clone()
    y[1:] = x[:-1]
    y[:3].copy_(y[3:].flip(0))
    return y, x.fill_diagonal_(0.0) if x.dim() == 2 else x


@program(FAMILY, inputs=lambda: (normal(4, 5),))
def triangles_in_place(x):
    x.tril_(1)
    return x.triu_(-1) + 1


@program(FAMILY, inputs=lambda: (normal(4, 5), torch.tensor([3, 0, 3]), normal(3, 5)), grad=True)
def grad_of_index_writes(x, index, rows):
    return x.index_add(0, index, rows), x.index_select(0, index) * 2, x.index_fill(0, index, 1.0) * x


@program(FAMILY, inputs=lambda: (normal(4, 5), ints(4, 5, low=0, high=4), normal(4, 5)), grad=True)
def grad_of_scatter_and_gather(x, index, source):
    return x.gather(0, index) * source, x.scatter_add(0, index, source).sin()


@program(FAMILY, inputs=lambda: (normal(4, 6), normal(2)), grad=True)
def grad_of_slice_writes(x, values):
    y = x * 2
    y[1:3, ::3] = values
    y[0] *= 3
    return torch.select_scatter(y, x[0].exp(), 0, 3), x[1:, ::2] * 2


@program(
    FAMILY,
    inputs=lambda: (normal(3, 4), flags(3, 4), normal(12)),
    grad=True,
    eager={"aten.masked_scatter_backward.default": "not-importable"},
)
def grad_of_masked_writes(x, p, source):
    return x.masked_fill(p, 0.5).exp(), torch.where(p, x * 2, source[:4]), x.masked_scatter(p, source)
