"""Convolutions, and layers made of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.programs.harness import normal, program

FAMILY = "convolutions"


@program(FAMILY, inputs=lambda: (normal(2, 3, 9), normal(4, 3, 3), normal(4)))
def lines(x, w, b):
    return F.conv1d(x, w), F.conv1d(x, w, b, stride=2, padding=1), F.conv1d(x, w, b, dilation=3)


@program(FAMILY, inputs=lambda: (normal(2, 3, 7, 8), normal(4, 3, 3, 2), normal(4)))
def images(x, w, b):
    return F.conv2d(x, w, b), F.conv2d(x, w, stride=(2, 1), padding=(1, 0)), F.conv2d(x, w, b, dilation=(2, 3))


@program(FAMILY, inputs=lambda: (normal(1, 2, 5, 4, 6), normal(3, 2, 2, 3, 2), normal(3)))
def volumes(x, w, b):
    return F.conv3d(x, w, b), F.conv3d(x, w, stride=(2, 1, 2), padding=1)


@program(FAMILY, inputs=lambda: (normal(1, 4, 6, 6), normal(6, 2, 3, 3), normal(6)))
def grouped(x, w, b):
    return F.conv2d(x, w, b, groups=2, padding=1).relu()


@program(FAMILY, inputs=lambda: (normal(2, 4, 7, 7), normal(4, 1, 3, 3), normal(8, 1, 3, 3)))
def depthwise(x, w, multiplied):
    return F.conv2d(x, w, groups=4, stride=2), F.conv2d(x, multiplied, groups=4, padding=1)


@program(FAMILY, inputs=lambda: (normal(2, 4, 9), normal(4, 1, 4)))
def depthwise_lines(x, w):
    return F.conv1d(F.pad(x, (3, 0)), w, groups=4) * torch.sigmoid(x)


@program(FAMILY, inputs=lambda: (normal(1, 2, 6, 7), normal(3, 2, 3, 4), normal(3, 2, 3, 3)))
def same_size(x, w, odd):
    return (
        F.conv2d(x, odd, padding="same"),
        F.conv2d(x, odd, padding="same", dilation=2),
        F.conv2d(x, odd, padding="valid"),
    )


@program(FAMILY, inputs=lambda: (normal(2, 2, 5, 5), normal(3, 2, 1, 1)))
def pointwise(x, w):
    return F.conv2d(x, w), F.conv2d(x, w, stride=2), torch.einsum("bchw,oc->bohw", x, w[:, :, 0, 0])


@program(FAMILY, inputs=lambda: (normal(1, 3, 4, 5), normal(3, 2, 3, 3), normal(2)))
def transposed_images(x, w, b):
    plain = F.conv_transpose2d(x, w, b)
    return plain, F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1)


@program(FAMILY, inputs=lambda: (normal(2, 3, 6), normal(3, 2, 4), normal(1, 2, 2, 3, 2), normal(2, 1, 2, 2, 2)))
def transposed_other_ranks(x, w, y, v):
    return F.conv_transpose1d(x, w, stride=2, padding=1), F.conv_transpose3d(y, v, stride=2)


@program(
    FAMILY,
    inputs=lambda: (normal(1, 4, 4, 4), normal(4, 2, 2, 2), normal(4, 1, 3, 3)),
    eager={"aten.convolution.default": "not-lowered"},
)
def transposed_grouped(x, w, v):
    return F.conv_transpose2d(x, w, stride=2, groups=2), F.conv_transpose2d(x, v, groups=4, dilation=2)


@program(FAMILY, inputs=lambda: (normal(3, 6, 6), normal(2, 3, 3, 3)))
def without_batch(x, w):
    return F.conv2d(x, w, padding=1), F.conv1d(x[0], w[:1, :, 0, 0].repeat(1, 2)[..., None])


@program(FAMILY, inputs=lambda: (normal(2, 3, 6, 6).to(memory_format=torch.channels_last), normal(4, 3, 3, 3)))
def channels_last(x, w):
    return F.conv2d(x, w, padding=1) + 1, F.max_pool2d(x, 2)


@program(FAMILY, inputs=lambda: (normal(1, 2, 6, 6, dtype=torch.float64), normal(2, 2, 3, 3, dtype=torch.float64)))
def doubles(x, w):
    return F.conv2d(x, w, padding=1), F.conv_transpose2d(x, w)


@program(FAMILY, inputs=lambda: (normal(1, 2, 6, 6, dtype=torch.bfloat16), normal(3, 2, 3, 3, dtype=torch.bfloat16)))
def narrow(x, w):
    return F.conv2d(x, w, stride=2)


@program(FAMILY, inputs=lambda: (normal(2, 3, 8, 8),))
class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")
        self.second = nn.Conv2d(3, 3, 3, padding=1, padding_mode="circular", bias=False)

    def forward(self, x):
        return x + self.second(self.first(x).relu())


@program(FAMILY, inputs=lambda: (normal(2, 3, 8, 8),), grad=True)
class GradImages(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.second = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.third = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        return self.third(self.second(self.first(x).relu()).tanh())


@program(
    FAMILY, inputs=lambda: (normal(2, 3, 8),), grad=True, eager={"aten.convolution_backward.default": "not-lowered"}
)
class GradLines(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv1d(3, 4, 3, stride=2, dilation=2, padding=2)
        self.depthwise = nn.Conv1d(4, 4, 3, padding=1, groups=4)
        self.up = nn.ConvTranspose1d(4, 3, 4, stride=2, padding=1)

    def forward(self, x):
        return self.up(self.depthwise(self.down(x)))


@program(
    FAMILY,
    inputs=lambda: (normal(1, 2, 4, 4), normal(2, 3, 3, 3)),
    grad=True,
    eager={"aten.convolution_backward.default": "not-lowered"},
)
def grad_transposed(x, w):
    return F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)


@program(FAMILY, inputs=lambda: (normal(1, 2, 4, 4, 4), normal(2, 2, 2, 2, 2)), grad=True)
def grad_volumes(x, w):
    return F.conv3d(x, w, padding=1).sigmoid()
