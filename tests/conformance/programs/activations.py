"""Activations, and softmax in its variants."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.programs.harness import normal, program, special

FAMILY = "activations"


@program(FAMILY, inputs=lambda: (special(),))
def rectifiers(x):
    return F.relu(x), F.relu6(x), F.leaky_relu(x, 0.2), F.hardtanh(x, -0.5, 0.5)


@program(FAMILY, inputs=lambda: (normal(3, 4),))
def exponential_rectifiers(x):
    return F.elu(x, 1.5), F.selu(x), F.celu(x, 0.7), F.softplus(x), F.softplus(x * 30, beta=2, threshold=5)


@program(FAMILY, inputs=lambda: (normal(3, 4),))
def gates(x):
    return F.silu(x), F.mish(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.glu(x), F.logsigmoid(x)


@program(FAMILY, inputs=lambda: (torch.linspace(-8, 8, 17),))
def hard_gates(x):
    return F.hardswish(x), F.hardsigmoid(x), F.hardshrink(x), F.softshrink(x), F.tanhshrink(x), F.softsign(x)


@program(FAMILY, inputs=lambda: (torch.tensor([-100.0, -88.0, 0.0, 88.0, 100.0]),))
def saturation(x):
    return torch.sigmoid(x), torch.tanh(x), F.logsigmoid(x), F.softplus(x), F.gelu(x)


@program(FAMILY, inputs=lambda: (normal(2, 3, 4),))
def softmaxes(x):
    return F.softmax(x, 0), F.softmax(x, -1), F.log_softmax(x, 1), F.softmin(x, 2), F.softmax(x, 1, dtype=torch.float64)


@program(FAMILY, inputs=lambda: (torch.tensor([[1e4, 1.0, -1e4], [float("-inf"), 0.0, 1.0], [3e38, 3e38, 0.0]]),))
def softmax_of_large_numbers(x):
    return F.softmax(x, -1), F.log_softmax(x, -1)


@program(FAMILY, inputs=lambda: (torch.full((2, 3), float("-inf")),))
def softmax_of_nothing(x):
    return F.softmax(x, -1), F.softmax(x.nan_to_num(neginf=0.0), -1)


@program(FAMILY, inputs=lambda: (normal(2, 3, 4),))
class PReLUChannels(nn.Module):
    def __init__(self):
        super().__init__()
        self.single = nn.PReLU()
        self.each = nn.PReLU(3, init=0.1)

    def forward(self, x):
        return self.single(x), self.each(x)


@program(FAMILY, inputs=lambda: (normal(4, 6),), grad=True)
class GradGates(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 8)
        self.slope = nn.PReLU(4)

    def forward(self, x):
        return self.slope(F.glu(self.linear(x))), F.gelu(x), F.silu(x)


@program(FAMILY, inputs=lambda: (normal(3, 5),), grad=True)
def grad_softmaxes(x):
    return F.softmax(x, 1), F.log_softmax(x, 0)


@program(FAMILY, inputs=lambda: (normal(3, 5),), grad=True)
def grad_rectifiers(x):
    return F.elu(x), F.leaky_relu(x), F.softplus(x), F.hardswish(x), F.mish(x), F.logsigmoid(x)


@program(FAMILY, inputs=lambda: (normal(3, 4),))
def in_place_activations(x):
    y = F.relu_(x)
    F.elu(y, inplace=True)
    return y, F.hardswish(x, inplace=True)


@program(FAMILY, inputs=lambda: (normal(3, 4, dtype=torch.bfloat16), normal(3, 4, dtype=torch.float16)))
def narrow_activations(x, y):
    return F.gelu(x), F.silu(y), F.softmax(x, -1), F.log_softmax(y, -1)
