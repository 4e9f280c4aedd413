"""Embeddings, resampling and recurrent layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.programs.harness import ints, normal, program


@program("embedding", inputs=lambda: (ints(2, 5, low=0, high=7), normal(7, 4)))
def lookups(n, w):
    return F.embedding(n, w), F.embedding(n, w, padding_idx=0) * 2, F.embedding(n[0, 0], w), w[n]


@program("embedding", inputs=lambda: (ints(2, 5, low=0, high=7, dtype=torch.int32), normal(7, 4)))
def lookups_by_int32(n, w):
    return F.embedding(n, w) + 1


@program(
    "embedding",
    inputs=lambda: (ints(3, 4, low=0, high=7), normal(7, 5)),
    eager={"aten._embedding_bag_forward_only.default": "not-lowered"},
)
def bags(n, w):
    return F.embedding_bag(n, w, mode="sum"), F.embedding_bag(n, w, mode="mean"), F.embedding_bag(n, w, mode="max")


@program(
    "embedding",
    inputs=lambda: (ints(7, low=0, high=7), torch.tensor([0, 3, 3]), normal(7, 5), normal(7)),
    eager={"aten._embedding_bag_forward_only.default": "known-wrong, not-lowered"},
)
def bags_with_offsets(n, offsets, w, weights):
    weighted = F.embedding_bag(n, w, offsets, mode="sum", per_sample_weights=weights)
    return F.embedding_bag(n, w, offsets, mode="sum"), F.embedding_bag(n, w, offsets, mode="mean"), weighted


@program("embedding", inputs=lambda: (ints(2, 5, low=0, high=4),))
def one_hot(n):
    return F.one_hot(n, 4), F.one_hot(n, 5).float().sum(1)


@program("embedding", inputs=lambda: (ints(2, 5, low=0, high=7),))
class TiedEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4, padding_idx=2)

    def forward(self, n):
        return F.linear(self.embedding(n), self.embedding.weight)


@program("embedding", inputs=lambda: (torch.tensor([[0, 2, 2], [6, 0, 1]]),), grad=True)
class GradEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4, padding_idx=0)
        self.positions = nn.Parameter(torch.randn(3, 4))

    def forward(self, n):
        return (self.embedding(n) + self.positions).tanh()


@program(
    "embedding",
    inputs=lambda: (ints(3, 4, low=0, high=7), normal(7, 5)),
    grad=True,
    eager={"aten._embedding_bag.default": "not-lowered", "aten._embedding_bag_backward.default": "not-importable"},
)
def grad_of_bags(n, w):
    return F.embedding_bag(n, w, mode="sum") * 2, F.embedding_bag(n, w, mode="mean")


@program("interpolate", inputs=lambda: (normal(1, 2, 3, 4), normal(1, 2, 5)))
def nearest(x, y):
    return F.interpolate(x, scale_factor=2), F.interpolate(x, (5, 3)), F.interpolate(y, 8)


@program("interpolate", inputs=lambda: (normal(1, 2, 3, 4), normal(1, 2, 2, 3, 2)))
def nearest_exact(x, y):
    return F.interpolate(x, (5, 7), mode="nearest-exact"), F.interpolate(y, scale_factor=2)


@program("interpolate", inputs=lambda: (normal(1, 2, 3, 4),))
def bilinear(x):
    aligned = F.interpolate(x, (5, 7), mode="bilinear", align_corners=True)
    return F.interpolate(x, scale_factor=2, mode="bilinear"), aligned, F.interpolate(x, (2, 2), mode="bilinear")


@program("interpolate", inputs=lambda: (normal(1, 2, 4, 4),))
def bicubic(x):
    return F.interpolate(x, (6, 7), mode="bicubic"), F.interpolate(x, (3, 6), mode="bicubic", align_corners=True)


@program("interpolate", inputs=lambda: (normal(1, 2, 5), normal(1, 1, 2, 3, 2)))
def linear_and_trilinear(x, y):
    return F.interpolate(x, 8, mode="linear"), F.interpolate(y, (3, 4, 4), mode="trilinear", align_corners=False)


@program(
    "interpolate",
    inputs=lambda: (normal(1, 2, 6, 6),),
    eager={"aten._upsample_bilinear2d_aa.default": "not-importable"},
)
def shrunk(x):
    return F.interpolate(x, (3, 2), mode="bilinear", antialias=True), F.interpolate(x, (3, 2), mode="area")


@program("interpolate", inputs=lambda: (normal(1, 2, 4, 4), normal(1, 3, 3, 2) / 2))
def sampled_on_grid(x, grid):
    near = F.grid_sample(x, grid, mode="nearest", align_corners=True)
    border = F.grid_sample(x, grid * 2, padding_mode="border", align_corners=False)
    return F.grid_sample(x, grid, align_corners=False), near, border


@program(
    "interpolate",
    inputs=lambda: (normal(1, 2, 4, 4), normal(1, 2, 3) / 3),
    eager={
        "aten.bitwise_and.Scalar": "dtype",
        "aten.eq.Scalar": "dtype",
        "aten.fmod.Scalar": "not-lowered",
        "prims.convert_element_type.default": "dtype",
    },
)
def sampled_on_affine_grid(x, theta):
    grid = F.affine_grid(theta, (1, 2, 3, 5), align_corners=False)
    reflected = F.grid_sample(x, grid * 2, padding_mode="reflection", align_corners=True)
    return grid, F.grid_sample(x, grid, align_corners=False), reflected


@program(
    "interpolate",
    inputs=lambda: (normal(1, 2, 3, 4), normal(1, 3, 3, 2) / 2),
    grad=True,
    eager={"aten.grid_sampler_2d_backward.default": "not-importable"},
)
def grad_of_resampling(x, grid):
    sampled = F.grid_sample(x, grid, align_corners=False)
    return F.interpolate(x, scale_factor=2), F.interpolate(x, (5, 6), mode="bilinear"), sampled


@program("recurrent", inputs=lambda: (normal(2, 4), normal(2, 5), normal(2, 5)))
class LongShortCell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 5)

    def forward(self, x, h, c):
        h, c = self.cell(x, (h, c))
        return self.cell(x * 2, (h, c))


@program("recurrent", inputs=lambda: (normal(2, 4), normal(2, 5)))
class GatedCell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 5)
        self.plain = nn.RNNCell(4, 5, nonlinearity="relu")

    def forward(self, x, h):
        return self.plain(x, self.cell(x, h))


@program("recurrent", inputs=lambda: (normal(3, 2, 4),))
class Unrolled(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 5)

    def forward(self, x):
        h = torch.zeros(2, 5)
        states = []
        for step in x:
            h = self.cell(step, h)
            states.append(h)
        return torch.stack(states), h


@program("recurrent", inputs=lambda: (normal(2, 3, 4),), eager={"aten.mkldnn_rnn_layer.default": "dtype"})
class LongShort(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent = nn.LSTM(4, 5, num_layers=2, batch_first=True)

    def forward(self, x):
        return self.recurrent(x * 2)[0].relu()


@program("recurrent", inputs=lambda: (normal(3, 2, 4),))
class GatedBothWays(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent = nn.GRU(4, 3, bidirectional=True)

    def forward(self, x):
        y, h = self.recurrent(x * 2)
        return y + 1, h.tanh()


@program("recurrent", inputs=lambda: (normal(6, 3), normal(3)))
def linear_recurrence(x, decay):
    h = torch.zeros(3)
    states = []
    for step in range(6):
        h = h * decay.sigmoid() + x[step]
        states.append(h)
    return torch.stack(states)


@program("recurrent", inputs=lambda: (normal(3, 2, 4),), grad=True)
class GradUnrolled(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 3)

    def forward(self, x):
        state = torch.zeros(2, 3), torch.zeros(2, 3)
        for step in x.unbind():
            state = self.cell(step, state)
        return state
