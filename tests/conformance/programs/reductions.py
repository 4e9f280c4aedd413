"""Reductions and scans."""

from __future__ import annotations

import torch

from tests.conformance.programs.harness import flags, ints, normal, positive, program, special

FAMILY = "reductions"


@program(FAMILY, inputs=lambda: (normal(2, 3, 4),))
def sums(x):
    return x.sum(), x.sum(1), x.sum((0, 2)), x.sum(-1, keepdim=True), x.sum(1, dtype=torch.float64), x.sum(())


@program(FAMILY, inputs=lambda: (ints(3, 4, dtype=torch.int32), flags(3, 4)))
def sums_of_integers(n, p):
    return n.sum(), n.sum(0), p.sum(), p.sum(1), n.sum(dtype=torch.int32), n.sum(1, dtype=torch.float32)


@program(FAMILY, inputs=lambda: (normal(2, 3, 4),))
def means(x):
    return x.mean(), x.mean(1), x.mean((0, 2), keepdim=True), x.double().mean(-1), x.mean(0, dtype=torch.float64)


@program(FAMILY, inputs=lambda: (positive(2, 3, 4), ints(3, 3, low=-3, high=4)))
def products(x, n):
    return x.prod(), x.prod(1), x.prod(2, keepdim=True), n.prod(), n.prod(0)


@program(FAMILY, inputs=lambda: (normal(2, 3, 4), ints(3, 4, dtype=torch.int32)))
def largest_and_smallest(x, n):
    return x.amax(), x.amax(1), x.amin((0, 2)), x.max(), x.min(), n.max(), n.amin(1, keepdim=True)


@program(FAMILY, inputs=lambda: (special(), special().reshape(3, 4)))
def largest_with_nan(x, y):
    return x.amax(), y.amax(1), y.amin(0), x.max(), x.sum(), x.mean()


@program(
    FAMILY,
    inputs=lambda: (normal(3, 5), ints(3, 5, low=0, high=3)),
    eager={"aten.argmax.default": "known-wrong", "aten.argmin.default": "known-wrong"},
)
def positions(x, n):
    return x.argmax(), x.argmax(1), x.argmin(0, keepdim=True), n.argmax(1), n.argmin(0), n.argmax()


@program(
    FAMILY,
    inputs=lambda: (normal(3, 5), special().reshape(3, 4)),
    eager={"aten.max.dim": "known-wrong", "aten.min.dim": "known-wrong"},
)
def values_and_positions(x, y):
    values, where = x.max(1)
    return values * 2, where + 1, y.max(1), y.min(0, keepdim=True)


@program(FAMILY, inputs=lambda: (ints(3, 5, low=0, high=3),))
def values_and_positions_of_integers(n):
    return n.max(1), n.min(0)


@program(FAMILY, inputs=lambda: (normal(3, 4),))
def extrema_together(x):
    return torch.aminmax(x), torch.aminmax(x, dim=1)


@program(FAMILY, inputs=lambda: (flags(3, 4), normal(3, 4), torch.zeros(3, 0)))
def all_and_any(p, x, empty):
    return p.all(), p.any(1), (x > 0).all(0), x.any(), empty.all(1), empty.any(1), (x > 9).any(dim=(0, 1))


@program(FAMILY, inputs=lambda: (normal(3, 4, 5),))
def spreads(x):
    return x.std(), x.var(1), x.std((0, 2), unbiased=False), x.var(correction=0), torch.var_mean(x, 2, keepdim=True)


@program(FAMILY, inputs=lambda: (normal(4, 5) * 1e-2 + 100,))
def spread_far_from_zero(x):
    return x.double().var(1), torch.std_mean(x.double(), 0)


@program(FAMILY, inputs=lambda: (normal(3, 4), torch.tensor([[1e4, 1e4], [float("-inf"), float("-inf")]])))
def log_sum_exp(x, y):
    return x.logsumexp(1), x.logsumexp((0, 1)), y.logsumexp(1), x.logsumexp(0, keepdim=True)


@program(FAMILY, inputs=lambda: (normal(3, 4),))
def norms(x):
    one_norm = torch.linalg.vector_norm(x, 1, dim=1)
    return x.norm(), x.norm(dim=1), one_norm, torch.linalg.vector_norm(x, float("inf")), torch.linalg.vector_norm(x, 3)


@program(FAMILY, inputs=lambda: (normal(3, 4),))
def other_norms(x):
    zero_norm = torch.linalg.vector_norm((x > 0).float(), 0, dim=0)
    return (
        zero_norm,
        torch.linalg.vector_norm(x, -float("inf"), dim=1),
        torch.linalg.norm(x),
        torch.linalg.matrix_norm(x),
    )


@program(
    FAMILY,
    inputs=lambda: (normal(3, 4), normal(3, 4)),
    eager={"aten._cdist_forward.default": "not-importable", "aten.dist.default": "not-importable"},
)
def distances(x, y):
    return torch.dist(x, y), torch.cdist(x, y), torch.nn.functional.pairwise_distance(x, y)


@program(FAMILY, inputs=lambda: (normal(3, 4), ints(3, 4), flags(3, 4)))
def running_sums(x, n, p):
    return x.cumsum(0), x.cumsum(-1), n.cumsum(1), p.cumsum(0), n.cumsum(0, dtype=torch.float32)


@program(
    FAMILY, inputs=lambda: (positive(3, 4), ints(3, 4, low=-2, high=3)), eager={"aten.cumprod.default": "not-lowered"}
)
def running_products(x, n):
    return x.cumprod(0), n.cumprod(1), x.cumprod(1, dtype=torch.float64)


@program(
    FAMILY,
    inputs=lambda: (normal(3, 4), ints(3, 4)),
    eager={"aten.cummax.default": "not-importable", "aten.cummin.default": "not-importable"},
)
def running_extrema(x, n):
    return torch.cummax(x, 1), torch.cummin(x, 0), torch.cummax(n, 0)


@program(FAMILY, inputs=lambda: (normal(3, 4) * 50,), eager={"aten.logcumsumexp.default": "known-wrong"})
def running_log_sum_exp(x):
    return torch.logcumsumexp(x, 1) + 1


@program(FAMILY, inputs=lambda: (torch.zeros(0, 3), torch.zeros(2, 0)))
def of_nothing(x, y):
    return x.sum(), x.sum(0), y.prod(1), x.mean(0), y.sum(1), y.cumsum(1), x.amax(1)


@program(FAMILY, inputs=lambda: (normal(), torch.tensor(3)))
def of_one_number(x, n):
    return x.sum(), x.mean(), x.amax(), x.sum(0), x.cumsum(0), n.prod(), x.all(), x.var(correction=0)


@program(FAMILY, inputs=lambda: (torch.tensor([1.0, float("nan"), 3.0, 4.0]),))
def without_nan(x):
    return torch.nansum(x), torch.nanmean(x), torch.nansum(x, 0)


@program(FAMILY, inputs=lambda: (ints(3, 4, low=-1, high=2), normal(3, 4)))
def counting(n, x):
    return torch.count_nonzero(n), torch.count_nonzero(x > 0, dim=0), (n == 0).sum(1)


@program(FAMILY, inputs=lambda: (normal(4, 9, dtype=torch.float16), normal(4, 9, dtype=torch.bfloat16)))
def narrow_sums(x, y):
    return x.sum(1), y.mean(0), x.prod(0), y.cumsum(1), y.amax(1), x.sum(dtype=torch.float32)


@program(FAMILY, inputs=lambda: (normal(4, 6).t(), normal(3, 2, 4).permute(2, 0, 1)))
def of_strided(x, y):
    return x.sum(0), y.mean(1), y.amax(2), x.cumsum(1)


@program(FAMILY, inputs=lambda: (normal(3, 5), normal(3)))
def difference_and_trapezoids(x, y):
    return torch.diff(x), torch.diff(x, n=2, dim=0), torch.trapezoid(x, dim=1), torch.cumulative_trapezoid(x, dim=1)


@program(FAMILY, inputs=lambda: (normal(4, 5), normal(3, 7)), breaks=True)
def covariances(x, y):
    return torch.cov(x * 2) + 1, torch.corrcoef(y)


@program(FAMILY, inputs=lambda: (normal(2, 3, 4),), grad=True)
def grad_sums(x):
    return x.sum(1) * 2, x.mean((0, 2)), x.var(2), x.logsumexp(0), x.norm(dim=1)


@program(FAMILY, inputs=lambda: (normal(3, 4),), grad=True, eager={"aten.max.dim": "known-wrong"})
def grad_extrema(x):
    return x.amax(1), x.amin(), x.max(1).values


@program(FAMILY, inputs=lambda: (positive(3, 4),), grad=True)
def grad_scans(x):
    return x.cumsum(1), x.cumprod(0), x.prod(1)
