"""Indexing by tensors of dynamic shapes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.helpers import NATIVE, assert_same

PROGRAMS = {
    "two": lambda x, i, j: x[i, j],
    "two, last": lambda x, i, j: x[:, i, j],
    "two, apart": lambda x, i, j: x[i, :, j],
    "three": lambda x, i, j: x[i, j, i],
    "broadcast": lambda x, i, j: x[i[:, None], j],
    "matrices": lambda x, i, j: x[(i[:, None] + j) % 3, (j[:, None] - i) % 4],
    "rows": lambda x, i, j: x[torch.arange(i.shape[0]), j],
    "of indices": lambda x, i, j: i[j],
    "put": lambda x, i, j: x.index_put((i, j), torch.ones(()), accumulate=True),
    "put, matrix": lambda x, i, j: x.index_put((i[None] + 0 * j[:, None],), torch.ones(()), accumulate=True),
    "put, rows": lambda x, i, j: x.index_put((i[:, None],), j[:, None, None, None].float(), accumulate=True),
    "put, apart": lambda x, i, j: torch.ops.aten.index_put(x, (i, None, j), torch.ones(()), accumulate=True),
    "put, apart, last": lambda x, i, j: torch.ops.aten.index_put(x, (None, i, j), torch.ones(()), accumulate=True),
    "lookup of a slice, repeated": lambda x, i, j: F.embedding(
        i[None, : j.shape[0]].expand(x.shape[0], j.shape[0]).abs(), x[0]
    ),
}


@pytest.mark.parametrize("all_dynamic", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_dynamic_index(name, all_dynamic):
    program = PROGRAMS[name]
    call = torch.compile(program, backend="turbine_lite_cpu", dynamic=True if all_dynamic else None, options=NATIVE)
    x = torch.rand(3, 4, 5)
    for i, j in (([0, 2, -1], [1, 1, -3]), ([1, 0, 1, 2, 1], [0, 2, -1, -2, 1])):
        indices = torch.tensor(i), torch.tensor(j)
        if not all_dynamic:
            for index in indices:
                torch._dynamo.mark_dynamic(index, 0)
        if name == "rows" and len(i) > len(x):
            continue
        assert_same(call(x, *indices), program(x, *indices))


class Lookups(nn.Module):
    """A row of positions and rows of numbers, as in BERT."""

    def __init__(self):
        super().__init__()
        self.numbers = nn.Embedding(31, 8, padding_idx=0)
        self.positions = nn.Embedding(16, 8)
        self.norm = nn.LayerNorm(8)
        self.register_buffer("row", torch.arange(16)[None])

    def forward(self, x):
        return self.norm(self.numbers(x) + self.positions(self.row[:, : x.shape[1]]))


def test_gradients_of_two_lookups():
    torch.manual_seed(0)
    module = Lookups()
    call = torch.compile(module, backend="turbine_lite_cpu", dynamic=True, options=NATIVE)
    for shape in ((2, 7), (3, 5)):
        x = torch.randint(31, shape)
        grads = []
        for function in (call, module):
            module.zero_grad()
            function(x).sin().sum().backward()
            grads.append([parameter.grad.clone() for parameter in module.parameters()])
        assert_same(*grads)


@pytest.mark.parametrize("bad", [3, -4])
def test_each_index_is_checked(bad):
    # 3 * 4 + 0 is no element of the flat tensor, but 2 * 4 + 4, beyond its row, would be one.
    call = torch.compile(PROGRAMS["two"], backend="turbine_lite_cpu", dynamic=True, options=NATIVE)
    x = torch.rand(4, 3, 5)
    with pytest.raises(IndexError):
        call(x, torch.tensor([0, 2]), torch.tensor([0, bad]))
