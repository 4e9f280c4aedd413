"""Every n-th element of a row, read at indices by the next operator."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.helpers import NATIVE, assert_same, assert_same_gradients, compiled

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


_IMAGES = torch.randn(3, 6, 9, 10, generator=torch.Generator().manual_seed(4))
_WEIGHT = torch.randn(4, 6, 1, 1, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "read",
    [
        lambda x: F.conv2d(x, _WEIGHT.to(x.dtype), stride=2),
        lambda x: F.conv2d(x, _WEIGHT.to(x.dtype), stride=(1, 3)),
        lambda x: F.conv2d(x, _WEIGHT.to(x.dtype), stride=(2, 1)),
        lambda x: F.conv2d(x, _WEIGHT[:1].to(x.dtype).expand(6, 6, 1, 1)[:, :1], stride=2, groups=6),
        lambda x: F.conv1d(x[:, :, 0], _WEIGHT[..., 0].to(x.dtype), stride=2),
        lambda x: F.avg_pool2d(x, 1, 2),
        lambda x: F.max_pool2d(x, 1, 3),
        lambda x: F.max_pool2d(x, (1, 2), 2, return_indices=True)[0],
        lambda x: F.max_pool1d(x[0], 1, 2),
        lambda x: F.avg_pool1d(x[0], 1, 2),
        lambda x: F.max_pool3d(x[None], 1, 2),
        lambda x: F.lp_pool2d(x, 2, 1, 2),
    ],
)
def test_what_a_reader_skips_is_computed_for_the_others(read, dtype):
    def function(x):
        shared = (x + 1).relu()
        return shared, read(shared), shared * 4  # exact

    x = _IMAGES.to(dtype)
    assert_same(compiled(function)(x), function(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_block_of_a_resnet_in_training(dynamic):
    torch.manual_seed(0)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Conv2d(6, 8, 3, 2, 1, bias=False)
            self.shortcut = torch.nn.Conv2d(6, 8, 1, 2, bias=False)

        def forward(self, x):
            x = (x * 2).relu()
            return (self.first(x) + self.shortcut(x)).relu().sum()

    block, twin = Block(), Block()
    twin.load_state_dict(block.state_dict())
    compiled = torch.compile(twin, backend="turbine_lite_cpu", dynamic=dynamic, options=NATIVE)
    for model in (block, compiled):
        model(_IMAGES).backward()
    assert_same_gradients(twin, block)
