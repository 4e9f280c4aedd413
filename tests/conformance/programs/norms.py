"""Normalisations."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.programs.harness import normal, program

FAMILY = "norms"


@program(FAMILY, inputs=lambda: (normal(2, 3, 4), normal(4), normal(4)))
def layers(x, w, b):
    return (
        F.layer_norm(x, (4,)),
        F.layer_norm(x, (4,), w, b, eps=1e-3),
        F.layer_norm(x, (3, 4)),
        F.layer_norm(x, (4,), w),
    )


@program(FAMILY, inputs=lambda: (normal(2, 6, 3, 3), normal(6), normal(6)))
def groups(x, w, b):
    return F.group_norm(x, 2), F.group_norm(x, 3, w, b), F.group_norm(x, 6), F.group_norm(x[:, :, 0, 0], 1, w)


@program(FAMILY, inputs=lambda: (normal(2, 3, 5), normal(2, 3, 4, 4), normal(3), normal(3)))
def instances(x, y, w, b):
    return F.instance_norm(x), F.instance_norm(y, weight=w, bias=b, eps=1e-2)


@program(FAMILY, inputs=lambda: (normal(4, 3, 5), normal(3), normal(3).abs(), normal(3), normal(3)))
def batch_in_eval(x, mean, variance, w, b):
    return F.batch_norm(x, mean, variance), F.batch_norm(x, mean, variance, w, b, eps=0.1)


@program(FAMILY, inputs=lambda: (normal(4, 3, 2, 2), normal(3), normal(3).abs()))
def batch_in_training(x, mean, variance):
    return (
        F.batch_norm(x, mean, variance, training=True, momentum=0.3),
        mean + 1,
        F.batch_norm(x, None, None, training=True),
    )


@program(FAMILY, inputs=(lambda: (normal(4, 3, 4, 4),), lambda: (normal(4, 3, 4, 4) + 2,)))
class BatchStatistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x):
        return self.norm(x).relu()


@program(FAMILY, inputs=(lambda: (normal(6, 3),), lambda: (normal(6, 3) + 2,)))
class BatchWithoutWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3, momentum=0.5, affine=False)

    def forward(self, x):
        return self.norm(x)


@program(FAMILY, inputs=lambda: (normal(4, 3, 4, 4),))
class BatchEvaluated(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.norm = nn.BatchNorm2d(3)
        self.eval()

    def forward(self, x):
        return self.norm(self.conv(x))


@program(FAMILY, inputs=lambda: (normal(2, 3, 4), normal(4)))
def root_mean_squares(x, w):
    return (
        F.rms_norm(x, (4,)),
        F.rms_norm(x, (4,), w, eps=1e-5),
        x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6),
    )


@program(FAMILY, inputs=lambda: (normal(2, 7, 3, 3),))
def local_responses(x):
    return F.local_response_norm(x, 3), F.local_response_norm(x, 5, alpha=0.1, beta=0.5, k=2.0)


@program(FAMILY, inputs=lambda: (normal(3, 4), torch.zeros(2, 3)))
def unit_vectors(x, zeros):
    return F.normalize(x), F.normalize(x, p=1, dim=0), F.normalize(zeros), x.renorm(2, 0, 1.0)


@program(FAMILY, inputs=lambda: (normal(3, 5, dtype=torch.bfloat16), normal(3, 5, dtype=torch.float16)))
def narrow(x, y):
    return F.layer_norm(x, (5,)), F.rms_norm(y, (5,))


@program(FAMILY, inputs=lambda: (normal(4, 6),))
class WeightAndSpectralNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.utils.parametrizations.weight_norm(nn.Linear(6, 4))
        self.second = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)).eval()

    def forward(self, x):
        return self.second(self.first(x))


@program(FAMILY, inputs=lambda: (normal(3, 4, 6),), grad=True)
class GradLayerNorms(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LayerNorm(6)
        self.rms = nn.RMSNorm(6)
        self.group = nn.GroupNorm(2, 4)

    def forward(self, x):
        return self.group(self.rms(self.layer(x)) + x)


@program(FAMILY, inputs=(lambda: (normal(4, 3, 4, 4),), lambda: (normal(4, 3, 4, 4) * 2,)), grad=True)
class GradBatchNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3, momentum=0.2)
        self.instance = nn.InstanceNorm2d(3, affine=True)

    def forward(self, x):
        return self.instance(self.norm(x).relu())
