"""Views that one region takes and another reads, with an operator in eager between the two.

Seen in a training step of Mamba. The result of a region has the strides of its fake value: where those are not dense
(a slice, a part of a split, an expanded row), the program's dense result was read as if it had them, or written beyond
the end of its memory.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._dynamo.utils import counters

from tests.helpers import assert_same


def _in_eager(x: torch.Tensor) -> torch.Tensor:
    return torch.sort(x, 0).values  # known-wrong, see turbine_lite/graph/known_wrong.py


def sliced(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    return y[::2] * _in_eager(y)[:2]


def split(x: torch.Tensor) -> torch.Tensor:
    left, right = x.exp().chunk(2, 1)
    return left * _in_eager(right)


def expanded(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()[:1].expand(9, 6)
    return (y * _in_eager(y[:1].relu())).sum(0)


def selected(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    return y[:, 2] * _in_eager(y)[:, 1]


def transposed(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    return y.t()[1:] @ _in_eager(y)


def viewed_twice(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    return y[:, 1:].unsqueeze(1)[:, :, ::2] * _in_eager(y)[:, None, :3]


def diagonal(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    return torch.diagonal(y) * _in_eager(y)[:, 0]


FUNCTIONS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    *(sliced, split, expanded, selected, transposed, viewed_twice, diagonal),
)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_view_crosses_from_region_to_region(function, dynamic):
    x = torch.rand(4, 6)
    if dynamic:
        torch._dynamo.mark_dynamic(x, 0)
    compiled = torch.compile(function, backend="turbine_lite_cpu", fullgraph=not dynamic, options={"min_block_size": 1})
    assert_same(compiled(x), function(x))
    assert counters["turbine_lite"]["executables"] >= 1
    in_eager = {key for key in counters["turbine_lite"] if key.startswith("eager ")}
    assert in_eager <= {"eager aten.sort.default: known-wrong", "eager aten.sort.stable: known-wrong"}
