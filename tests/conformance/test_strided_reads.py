"""Every n-th element of a row, read at indices by the next operator."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.helpers import assert_same, compiled

AT = torch.tensor([0, 1])

PROGRAMS = {
    "index": lambda x: x[:, :, ::3][AT, AT, AT],
    "index, with another use": lambda x: x[:, :, ::2][AT, AT, AT].sum() + x[:, :, ::2],
    "index, transposed": lambda x: x[:, :, 1::2].transpose(0, 2)[AT, AT],
    "flip along the row": lambda x: x[:, :, -4:-1:2].flip(2),
    "flip": lambda x: x[:, :, ::3].flip(0),
    "flip of a column": lambda x: x[:, :, -2].flip(0),
    "flip of an expanded column": lambda x: x[..., 0].unsqueeze(-1).expand(3, 3, 2).flip(0),
    "index_select": lambda x: x.diagonal(0, 0, 1)[..., 1].index_select(0, AT),
    "index_select of two strides": lambda x: x[..., ::2][..., ::2].index_select(0, AT),
    "convolution": lambda x: F.conv_transpose1d(x, x[:, :, ::3]),
    "cross": lambda x: torch.linalg.cross(x[..., ::3], x[..., 1::3]),
    "scatter from": lambda x: torch.zeros(3, 3, 3).scatter(0, torch.ones(3, 3, 3, dtype=torch.int64), x[..., ::3]),
    "scatter into": lambda x: x[..., ::3].scatter(0, torch.ones(3, 3, 3, dtype=torch.int64), 1.0),
    "embedding": lambda x: F.embedding(AT, x[0, :, ::3]),
    "indices": lambda x: x[0, 0][(x.abs() * 3).to(torch.int64)[..., ::3]],
    "integers": lambda x: (x * 9).to(torch.int64)[..., ::3].flip(1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_strided_read(name):
    x = torch.rand(3, 3, 9)
    assert_same(compiled(PROGRAMS[name])(x), PROGRAMS[name](x))
