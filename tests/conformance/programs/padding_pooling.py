"""Padding and pooling."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.programs.harness import flags, ints, normal, program


@program("padding", inputs=lambda: (normal(2, 3, 4), flags(3, 3)))
def constants(x, p):
    return F.pad(x, (1, 2)), F.pad(x, (1, 0, 2, 1), value=-1.5), F.pad(p, (1, 1), value=True)


@program("padding", inputs=lambda: (normal(2, 5, 6), ints(4, 4)))
def negative_pads(x, n):
    return F.pad(x, (-1, 2)), F.pad(x, (-2, -1, 1, -1), value=3.0), F.pad(n, (1, -1), value=7)


@program("padding", inputs=lambda: (normal(2, 3, 5), normal(1, 2, 4, 5)))
def reflections(x, y):
    return F.pad(x, (2, 1), "reflect"), F.pad(y, (1, 2, 3, 0), "reflect")


@program("padding", inputs=lambda: (normal(1, 1, 3, 4, 3),))
def reflection_of_volume(x):
    return F.pad(x, (1, 0, 2, 1, 1, 1), "reflect")


@program("padding", inputs=lambda: (normal(2, 3, 5), normal(1, 2, 4, 5), normal(1, 1, 2, 3, 2)))
def replications(x, y, z):
    return F.pad(x, (2, 1), "replicate"), F.pad(y, (1, 2, 3, 0), "replicate"), F.pad(z, (1, 1, 0, 2, 1, 0), "replicate")


@program("padding", inputs=lambda: (normal(2, 3, 5), normal(1, 2, 4, 5), normal(1, 1, 2, 3, 2)))
def circles(x, y, z):
    return F.pad(x, (2, 1), "circular"), F.pad(y, (1, 2, 3, 0), "circular"), F.pad(z, (1, 1, 0, 2, 1, 0), "circular")


@program("padding", inputs=lambda: (normal(2, 2, 4, 4),))
class PaddingModules(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.ZeroPad2d(1), nn.ReflectionPad2d((1, 0, 2, 0)), nn.ConstantPad2d(1, 2.5))

    def forward(self, x):
        return self.layers(x) + 1


@program(
    "padding",
    inputs=lambda: (normal(1, 2, 4, 5), normal(2, 3, 5)),
    grad=True,
    eager={"aten.constant_pad_nd.default": "not-lowered", "aten.replication_pad1d_backward.default": "not-importable"},
)
def grad_of_padding(x, y):
    return F.pad(x, (1, -1, 2, 0)) * 2, F.pad(x, (1, 2, 0, 1), "reflect"), F.pad(y, (1, 2), "replicate")


@program("pooling", inputs=lambda: (normal(2, 3, 8, 9),))
def maxima(x):
    return F.max_pool2d(x, 2), F.max_pool2d(x, (3, 2), stride=(2, 1), padding=1), F.max_pool2d(x, 2, dilation=2)


@program("pooling", inputs=lambda: (normal(1, 2, 6, 6),))
def maxima_with_indices(x):
    values, indices = F.max_pool2d(x, 2, return_indices=True)
    return values, indices, F.max_unpool2d(values, indices, 2)


@program("pooling", inputs=lambda: (normal(1, 2, 7, 8),))
def ceil_mode(x):
    averages = F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True)
    return F.max_pool2d(x, 3, stride=2, ceil_mode=True), F.avg_pool2d(x, 3, stride=2, ceil_mode=True), averages


@program("pooling", inputs=lambda: (normal(1, 2, 7, 8),))
def a_window_larger_than_the_image(x):
    whole = F.avg_pool2d(x, 100, ceil_mode=True)
    padded = F.avg_pool2d(x, (9, 10), stride=50, padding=1, ceil_mode=True)
    uncounted = F.avg_pool2d(x, 99, padding=1, ceil_mode=True, count_include_pad=False)
    return whole, padded, uncounted, F.avg_pool2d(x, 100, ceil_mode=True, divisor_override=7)


@program("pooling", inputs=lambda: (normal(2, 3, 9), normal(1, 2, 4, 6, 4)))
def other_ranks(x, y):
    return F.max_pool1d(x, 3, stride=2, padding=1), F.max_pool3d(y, 2), F.avg_pool1d(x, 2), F.avg_pool3d(y, 2, stride=1)


@program("pooling", inputs=lambda: (torch.tensor([[[1.0, float("nan"), -3.0, float("-inf"), float("-inf"), 2.0]]]),))
def maxima_of_special(x):
    return F.max_pool1d(x, 2, stride=1), F.avg_pool1d(x, 2)


@program("pooling", inputs=lambda: (normal(1, 2, 6, 7),))
def averages(x):
    counted = F.avg_pool2d(x, 3, padding=1)
    uncounted = F.avg_pool2d(x, (3, 2), padding=1, count_include_pad=False)
    return counted, uncounted, F.avg_pool2d(x, 2, divisor_override=3)


@program("pooling", inputs=lambda: (normal(2, 3, 8, 6),))
def adaptive_averages(x):
    return F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (4, 3)), F.adaptive_avg_pool2d(x, (None, 2))


@program("pooling", inputs=lambda: (normal(2, 3, 7), normal(1, 2, 7, 5)))
def adaptive_averages_uneven(x, y):
    return F.adaptive_avg_pool1d(x, 3), F.adaptive_avg_pool2d(y, (3, 2))


@program("pooling", inputs=lambda: (normal(2, 3, 6), normal(1, 2, 6, 8)))
def adaptive_maxima(x, y):
    return (
        F.adaptive_max_pool1d(x, 2),
        F.adaptive_max_pool2d(y, (3, 2), return_indices=True),
        F.adaptive_max_pool2d(y, 1),
    )


@program("pooling", inputs=lambda: (normal(1, 2, 4, 6, 4),))
def adaptive_volumes(x):
    return F.adaptive_avg_pool3d(x, (2, 3, 1)), F.adaptive_max_pool3d(x, 2)


@program("pooling", inputs=lambda: (normal(2, 2, 6, 6), normal(2, 3, 8)))
def power_averages(x, y):
    return F.lp_pool2d(x.abs(), 2, 2), F.lp_pool1d(y.abs(), 3, 2, stride=2)


@program(
    "pooling",
    inputs=lambda: (normal(3, 8, 8), ints(1, 1, 4, 4).float()),
    eager={"aten.avg_pool2d.default": "not-lowered", "aten.max_pool2d_with_indices.default": "not-lowered"},
)
def without_batch(x, y):
    return F.max_pool2d(x, 2), F.avg_pool2d(x, 4), F.max_pool2d(y, 2, return_indices=True)


@program(
    "pooling",
    inputs=lambda: (normal(1, 2, 6, 6),),
    grad=True,
    eager={"aten.adaptive_max_pool2d_backward.default": "not-importable"},
)
def grad_of_maxima(x):
    return F.max_pool2d(x, 3, stride=2, padding=1), F.adaptive_max_pool2d(x, 2)


@program(
    "pooling",
    inputs=lambda: (normal(1, 2, 6, 6),),
    grad=True,
    eager={
        "aten._adaptive_avg_pool2d_backward.default": "not-lowered",
        "aten.avg_pool2d_backward.default": "not-lowered",
    },
)
def grad_of_averages(x):
    return F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, padding=1, count_include_pad=False), F.adaptive_avg_pool2d(x, (2, 1))


@program("pooling", inputs=lambda: (normal(1, 2, 1), normal(1, 2, 1), torch.tensor([[[1], [2]]])))
def two_unpoolings_of_one_size(x, y, i):
    # The compiler did not end on the second: a scatter into zeros at indices that are computed.
    return F.max_unpool1d(x, i, 3), F.max_unpool1d(y, i, 3)
