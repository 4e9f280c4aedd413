"""Each row of the table of operators that IREE gets wrong: still wrong there, and right through the backend."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils._pytree import tree_leaves

from turbine_lite.graph import support
from turbine_lite.graph.known_wrong import KNOWN_WRONG

NAN = float("nan")
Case = tuple[Callable[..., object], tuple[torch.Tensor, ...]]

aten = torch.ops.aten
FLOATS = torch.tensor([1.0, NAN, 3.0, -1.0, 2.0])
MANY = torch.cat([torch.arange(20.0), FLOATS])  # more than are sorted by an expansion
BOOLS = torch.tensor([True, False, True, False])
OTHER = torch.tensor([True, True, False, False])
INDEX = torch.tensor([0, 0, 1, 0])

BAG = (torch.arange(6), torch.randn(6, 3), torch.tensor([0, 2, 4]), torch.rand(6))

PROOFS: dict[str, Case] = {
    "aten.logcumsumexp.default": (
        lambda x: x.logcumsumexp(0),
        (torch.tensor([1.0, 2.0, 1000.0, 3.0], dtype=torch.float64),),
    ),
    "aten._embedding_bag_forward_only.default": (
        lambda i, w, o, s: aten._embedding_bag_forward_only(w, i, o, False, 0, False, s)[0],
        BAG,
    ),
    "aten._embedding_bag.default": (lambda i, w, o, s: aten._embedding_bag(w, i, o, False, 0, False, s)[0], BAG),
    "aten.sort.default": (lambda x: x.sort(), (MANY,)),
    "aten.sort.stable": (lambda x: x.sort(stable=True), (MANY,)),
    "aten.topk.default": (lambda x: x.topk(2), (FLOATS,)),
    "aten.scatter_reduce.two": (lambda x, i, s: x.scatter_reduce(0, i, s, "amax"), (BOOLS, INDEX, OTHER)),
    "aten.clamp.Tensor": (lambda x, y: torch.clamp(x, min=y), (BOOLS, OTHER)),
    "aten.clamp_min.Tensor": (aten.clamp_min, (BOOLS, OTHER)),
    "aten.clamp_max.Tensor": (aten.clamp_max, (BOOLS, OTHER)),
    "aten.index_put.default": (lambda x, i, v: x.index_put((i,), v, accumulate=True), (BOOLS, INDEX, BOOLS)),
    "aten._unsafe_index_put.default": (lambda x, i, v: aten._unsafe_index_put(x, [i], v, True), (BOOLS, INDEX, BOOLS)),
    "aten.index_add.default": (lambda x, i, v: x.index_add(0, i, v), (BOOLS, INDEX, BOOLS)),
    "aten.scatter_add.default": (lambda x, i, v: x.scatter_add(0, i, v), (BOOLS, INDEX, BOOLS)),
    "aten.cummax.default": (lambda x: x.cummax(0), (BOOLS,)),
    "aten.cummin.default": (lambda x: x.cummin(0), (BOOLS,)),
}


def equal(got: object, want: object) -> bool:
    pairs = zip(tree_leaves(got), tree_leaves(want), strict=True)
    return all(
        a.dtype == b.dtype and torch.allclose(a.double(), b.double(), rtol=1e-5, atol=1e-7, equal_nan=True)
        for a, b in pairs
    )


def compile_anew(function: Callable[..., object]) -> Callable[..., object]:
    torch._dynamo.reset()
    return torch.compile(lambda *args: function(*args), backend="turbine_lite_cpu")


def test_every_row_has_a_proof():
    assert {row.op for row in KNOWN_WRONG} == set(PROOFS)


@pytest.mark.parametrize("op", PROOFS)
def test_right_through_the_backend(op):
    function, arguments = PROOFS[op]
    assert equal(compile_anew(function)(*arguments), function(*arguments))


@pytest.mark.parametrize("op", PROOFS)
def test_still_wrong_in_iree(op, monkeypatch):
    """When this fails, IREE has been mended: delete the row."""
    function, arguments = PROOFS[op]
    monkeypatch.setattr(support, "why_known_wrong", lambda node: None)
    got = compile_anew(function)(*arguments)
    counts = torch._dynamo.utils.counters["turbine_lite"]
    refused = any(key.startswith(f"eager {op}") for key in counts)  # it no longer lowers: as good as wrong
    assert refused or not equal(got, function(*arguments))
