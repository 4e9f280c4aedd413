"""Sorting, searching and counting."""

from __future__ import annotations

import torch

from tests.conformance.programs.harness import flags, ints, normal, program, special

FAMILY = "sorting"


@program(
    FAMILY,
    inputs=lambda: (normal(3, 7), special()),
    eager={"aten.sort.default": "known-wrong", "aten.sort.stable": "known-wrong"},
)
def sorts(x, y):
    return x.sort(), x.sort(0, descending=True), torch.sort(y, stable=True), x.argsort(1)


@program(
    FAMILY,
    inputs=lambda: (ints(3, 7, low=0, high=4), flags(9)),
    eager={"aten.sort.stable": "known-wrong, not-importable"},
)
def stable_sorts(n, p):
    return torch.sort(n, stable=True), torch.sort(n, dim=0, descending=True, stable=True), torch.sort(p, stable=True)


@program(FAMILY, inputs=lambda: (normal(3, 7), special()), eager={"aten.topk.default": "known-wrong"})
def largest(x, y):
    return x.topk(3), x.topk(2, 0, largest=False), y.topk(2).values, x.topk(1)


@program(FAMILY, inputs=lambda: (normal(3, 7),), eager={"aten.sort.default": "known-wrong"})
def sorted_then_used(x):
    values, order = x.sort(dim=1)
    return (values.cumsum(1) < 1).sum(1), torch.zeros_like(x).scatter(1, order, values * 2)


@program(FAMILY, inputs=lambda: (normal(3, 7),), eager={"aten.sort.default": "known-wrong"})
def nucleus(x):
    probabilities, order = x.softmax(1).sort(1, descending=True)
    keep = probabilities.cumsum(1) - probabilities < 0.7
    return torch.zeros_like(x).scatter(1, order, probabilities * keep)


@program(
    FAMILY,
    inputs=lambda: (normal(3, 7),),
    eager={
        "aten.kthvalue.default": "not-lowered",
        "aten.median.default": "not-importable",
        "aten.median.dim": "not-importable",
    },
)
def order_statistics(x):
    return torch.kthvalue(x, 2), torch.kthvalue(x, 3, 0, keepdim=True), x.median(), x.median(1)


@program(
    FAMILY,
    inputs=lambda: (normal(3, 5), torch.tensor([1.0, float("nan"), 2.0])),
    eager={
        "aten.median.default": "not-importable",
        "aten.nanmedian.default": "not-importable",
        "aten.sort.default": "known-wrong",
    },
)
def quantiles(x, y):
    return x.quantile(0.4), x.quantile(torch.tensor([0.1, 0.9]), dim=1), y.nanmedian(), y.median(), y.nanquantile(0.5)


@program(FAMILY, inputs=lambda: (ints(3, 7, low=0, high=3),), eager={"aten.mode.default": "not-importable"})
def modes(n):
    return n.mode(1), (n * 2).mode(0, keepdim=True)


@program(
    FAMILY,
    inputs=lambda: (torch.tensor([0.0, 1.0, 1.0, 2.5]), normal(2, 5)),
    eager={"aten.searchsorted.Tensor": "not-importable"},
)
def search_sorted(boundaries, x):
    return torch.searchsorted(boundaries, x), torch.searchsorted(boundaries, x, right=True, out_int32=True)


@program(FAMILY, inputs=lambda: (torch.tensor([-1.0, 0.0, 1.0]), normal(2, 5), ints(6)))
def buckets(boundaries, x, n):
    return torch.bucketize(x, boundaries), torch.bucketize(n, torch.tensor([-3, 0, 3]), right=True)


@program(FAMILY, inputs=lambda: (ints(9, low=0, high=5),), breaks=True)
def unique_values(n):
    values, inverse, counts = torch.unique(n + 1, return_inverse=True, return_counts=True)
    return values * 2, inverse, counts, torch.unique_consecutive(n)


@program(FAMILY, inputs=lambda: (normal(20),), eager={"aten.histc.default": "not-importable"})
def histograms(x):
    return torch.histc(x, bins=4, min=-2, max=2), torch.histc(x.abs(), bins=3, min=0, max=1)


@program(FAMILY, inputs=lambda: (ints(12, low=0, high=5),), breaks=True)
def bin_counts(n):
    return torch.bincount(n + 1, minlength=8) * 2


@program(FAMILY, inputs=lambda: (ints(7, low=0, high=5), torch.tensor([1, 3])))
def membership(n, members):
    return torch.isin(n, members), torch.isin(n, 2), torch.isin(n, members, invert=True)


@program(
    FAMILY,
    inputs=lambda: (normal(3, 6),),
    grad=True,
    eager={
        "aten.kthvalue.default": "not-lowered",
        "aten.median.dim": "not-importable",
        "aten.scatter.src": "not-lowered",
        "aten.sort.default": "known-wrong",
        "aten.topk.default": "known-wrong",
    },
)
def grad_of_sorts(x):
    return x.sort(1).values * 2, x.topk(2).values, x.median(1).values, x.kthvalue(2).values
