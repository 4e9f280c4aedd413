"""Random numbers: the same as eager's under the same seed."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.programs.harness import normal, positive, program

FAMILY = "random"


@program(FAMILY, inputs=lambda: (normal(4, 6),), eager={"aten.bernoulli.p": "random"})
def dropouts(x):
    return F.dropout(x, 0.3) * 2, F.dropout(x, 0.0) - 1, F.dropout(x, 0.5, training=False) + 1


@program(FAMILY, inputs=lambda: (normal(2, 3, 4, 4),), eager={"aten.bernoulli.p": "random"})
def dropouts_of_channels(x):
    return F.dropout2d(x, 0.4), F.alpha_dropout(x, 0.2), F.feature_alpha_dropout(x, 0.3)


@program(
    FAMILY,
    inputs=lambda: (normal(3, 4),),
    eager={
        "aten.rand_like.default": "random",
        "aten.randint_like.low_dtype": "random",
        "aten.randn_like.default": "random",
    },
)
def like_a_tensor(x):
    return x + torch.rand_like(x), torch.randn_like(x.t()) * 2, torch.randint_like(x, 3, 9) - x


@program(
    FAMILY,
    inputs=lambda: (normal(3, 4),),
    eager={
        "aten.normal.float_float": "random",
        "aten.rand.default": "random",
        "aten.randint.low": "random",
        "aten.randn.default": "random",
    },
)
def of_a_size(x):
    return torch.rand(3, 4) * x, torch.randn(4) + x, torch.randint(0, 5, (3, 4)) + x, torch.normal(0.5, 2.0, (3, 4)) * x


@program(
    FAMILY,
    inputs=lambda: (positive(3, 4).clamp(max=1),),
    eager={"aten.bernoulli.default": "random", "aten.bernoulli.p": "random", "aten.rand_like.default": "random"},
)
def bernoullis(p):
    return torch.bernoulli(p) * 2, torch.bernoulli(p, 0.3), (torch.rand_like(p) < p).float().mean()


@program(FAMILY, inputs=lambda: (normal(3, 5),), eager={"aten.multinomial.default": "random"})
def categories(x):
    probabilities = x.softmax(1)
    return torch.multinomial(probabilities, 2), torch.multinomial(probabilities, 7, replacement=True) + 1


@program(FAMILY, inputs=lambda: (normal(6, 3),), eager={"aten.randperm.default": "random"})
def permutation(x):
    return x[torch.randperm(6)] * 2, x.sum()


@program(
    FAMILY,
    inputs=lambda: (normal(3, 4),),
    eager={
        "aten.bernoulli.p": "random",
        "aten.exponential.default": "random",
        "aten.normal_functional.default": "random",
        "aten.uniform.default": "random",
    },
)
def in_place_draws(x):
    y = torch.empty(3, 4).uniform_(-1, 1)
    x.normal_(1.0, 0.5)
    return y + x, torch.empty(4).exponential_() * 2, x.clone().bernoulli_(0.5)


@program(
    FAMILY,
    inputs=lambda: (normal(3, 4), positive(3, 4)),
    eager={"aten.normal.Tensor_Tensor": "random", "aten.poisson.default": "random"},
)
def normal_of_tensors(mean, deviation):
    return torch.normal(mean, deviation) * 2, torch.poisson(deviation * 3)


@program(FAMILY, inputs=lambda: (normal(3, 5),), eager={"aten.rand_like.default": "random"})
def gumbel(x):
    noise = -torch.log(-torch.log(torch.rand_like(x) * 0.9 + 0.05))
    return (x + noise).softmax(1), (x + noise).amax(1)


@program(
    FAMILY, inputs=(lambda: (normal(4, 6),), lambda: (normal(4, 6),)), grad=True, eager={"aten.bernoulli.p": "random"}
)
class GradDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2), nn.Dropout(0.2))

    def forward(self, x):
        return self.layers(x)


@program(
    FAMILY,
    inputs=lambda: (normal(3, 4),),
    grad=True,
    eager={"aten.randn_like.default": "random", "aten.rrelu_with_noise_functional.default": "random"},
)
def grad_of_reparametrised(x):
    return x + torch.randn_like(x) * x.exp(), F.rrelu(x, training=True), F.rrelu(x, training=False)


@program(FAMILY, inputs=lambda: (normal(2, 2, 4, 4),), eager={"aten.bernoulli.p": "random"})
def attention_dropout(x):
    return F.scaled_dot_product_attention(x, x, x, dropout_p=0.3) + 1
