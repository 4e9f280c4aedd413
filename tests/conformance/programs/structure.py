"""Constants, outputs of all kinds, mutation and aliasing."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.programs.harness import ints, normal, program

_TABLE = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
_LARGE = torch.arange(400.0).reshape(20, 20)


class Pair(NamedTuple):
    first: torch.Tensor
    second: object


@program("constants", inputs=lambda: (normal(3, 4),))
def factories(x):
    return torch.arange(4) * x, torch.linspace(0, 1, 4) + x, torch.eye(3) @ x, torch.full((3, 4), math.pi) * x


@program("constants", inputs=lambda: (normal(2),))
def only_constants(x):
    return torch.zeros(2, 3), torch.ones(2, dtype=torch.int64), torch.full((2,), True), torch.arange(5, 0, -2), x + 1


@program("constants", inputs=lambda: (normal(2, 2), normal(20)))
def lifted(x, y):
    return x @ _TABLE, x + torch.tensor([0.5, 1.5]), torch.tensor(3) * x, _LARGE @ y


@program("constants", inputs=lambda: (normal(2, 2),))
def returned(x):
    return _TABLE, torch.tensor([1, 2]), x * 2


@program("constants", inputs=lambda: (normal(3),))
def ranges(x):
    steps = torch.arange(0.0, 1.0, 0.25), torch.logspace(0, 2, 3), torch.linspace(5, 1, 5, dtype=torch.float64)
    return *steps, x + torch.arange(3, dtype=torch.int32), x.new_zeros(2), x.new_full((2,), 7)


@program("constants", inputs=lambda: (normal(3),))
def without_elements(x):
    return torch.empty(0, 2), torch.zeros(3, 0) + x[:, None], torch.arange(0), x * 2


@program("constants", inputs=lambda: (normal(3, 4),))
class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.linspace(1, 2, 4))
        self.register_buffer("mask", torch.ones(4, 4).tril().bool(), persistent=False)
        self.offset = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, x):
        return (x * self.scale + self.offset) @ self.mask.float(), self.mask


@program("constants", inputs=lambda: (normal(3, 4),))
class SharedWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x))


@program(
    "constants",
    inputs=lambda: (normal(4),),
    eager={"aten.bartlett_window.default": "not-importable", "aten.hamming_window.periodic": "not-importable"},
)
def windows(x):
    return x * torch.hann_window(4), x * torch.hamming_window(4, periodic=False), torch.bartlett_window(4) + x


@program("outputs", inputs=lambda: (normal(3, 4),))
def nested(x):
    return {"sum": x.sum(), "rest": [x + 1, (x * 2, None)], "name": "rows", "count": x.shape[0]}


@program("outputs", inputs=lambda: (normal(3, 4),))
def named(x):
    return Pair(x.exp(), Pair(x.sum(), 3)), x.max(1)


@program("outputs", inputs=lambda: (normal(3, 4),))
def with_none(x):
    return None, x + 1, None


@program("outputs", inputs=lambda: (normal(3, 4),))
def same_twice(x):
    y = x * 2
    return y, y, x.sum(), [y]


@program("outputs", inputs=lambda: (normal(3, 4), normal(3)))
def argument_itself(x, unused):
    return x, x * 2, unused


@program("outputs", inputs=lambda: (normal(3, 4),))
def views_of_argument(x):
    return x[1:], x.t(), x.view(-1), x.detach(), x * 2


@program("outputs", inputs=lambda: (normal(3, 4),))
def views_of_result(x):
    y = x * 2
    return y, y.t(), y[0], y.unsqueeze(0), y.view(2, 6)


@program("outputs", inputs=lambda: (normal(3, 4),))
def view_without_base(x):
    return (x * 2).t(), (x + 1)[1], (x - 1).expand(2, 3, 4)


@program("outputs", inputs=lambda: (normal(3, 4), ints(3)))
def scalars(x, n):
    return x.dim(), x.numel(), tuple(x.shape), x.mean(), (n > 0).any(), x.dtype, x.is_contiguous()


@program("outputs", inputs=lambda: ({"x": normal(3), "y": [normal(3), (normal(3), 2)]},))
def nested_arguments(arguments):
    first, (second, factor) = arguments["y"]
    return arguments["x"] + first * second * factor


@program("outputs", inputs=lambda: (normal(3, 4),))
def no_result(x):
    x.add_(1)


@program("outputs", inputs=lambda: (normal(3, 4),), grad=True)
def grad_of_aliases(x):
    y = x * 2
    return y, y.t(), x.view(-1), y.detach(), x


@program("mutation", inputs=lambda: (normal(3, 4), normal(4)))
def arguments(x, y):
    x.mul_(y)
    y += 1
    return x + y


@program("mutation", inputs=lambda: (normal(3, 4),))
def returned_argument(x):
    return x.add_(1), x.sum()


@program("mutation", inputs=lambda: (normal(4, 4).t(),))
def transposed_argument(x):
    x.copy_(x * 2)
    x[0].zero_()
    return x.relu()


@program("mutation", inputs=lambda: (normal(3, 4), ints(3, 4)))
def kinds_of_writes(x, n):
    x.zero_()
    n.bitwise_and_(3)
    x += n
    x.clamp_(0, 2).sqrt_()
    return n.float().div_(3)


@program("mutation", inputs=lambda: _argument_and_view())
def argument_and_its_view(x, view):
    view.add_(1)
    return x * 2


def _argument_and_view():
    x = normal(3, 4)
    return x, x[1]


@program("mutation", inputs=lambda: (normal(3, 4),))
def local_only(x):
    y = x.clone()
    y.mul_(2).add_(x)
    y[0] = 0
    return y


@program("mutation", inputs=lambda: (normal(3, 4),))
def changed_shape(x):
    y = x * 2
    y.unsqueeze_(0).t_() if y.dim() == 1 else y.transpose_(0, 1)
    return y.squeeze_()


@program("mutation", inputs=(lambda: (normal(3),), lambda: (normal(3),), lambda: (normal(3),)))
class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        self.steps += 1
        self.mean.lerp_(x, 0.1)
        return (x - self.mean) / self.steps


@program(
    "mutation",
    inputs=tuple((lambda position=position: (normal(1, 1, 4), torch.tensor([position]))) for position in range(3)),
)
class KeyValueCache(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 8)
        self.register_buffer("keys", torch.zeros(1, 6, 4), persistent=False)
        self.register_buffer("values", torch.zeros(1, 6, 4), persistent=False)

    def forward(self, x, position):
        key, value = self.project(x).chunk(2, -1)
        self.keys.index_copy_(1, position, key)
        self.values[:, position] = value
        seen = torch.arange(6) <= position
        return F.scaled_dot_product_attention(x, self.keys, self.values, attn_mask=seen[None])


@program("mutation", inputs=(lambda: (normal(1, 2, 4),), lambda: (normal(1, 1, 4),), lambda: (normal(1, 1, 4),)))
class GrowingState(nn.Module):
    def __init__(self):
        super().__init__()
        self.state = torch.zeros(1, 1, 4)

    def forward(self, x):
        self.state = torch.cat([self.state, x], 1)
        return self.state.mean(1)


@program("mutation", inputs=lambda: (normal(4, 3), normal(4, 1)))
class Descent(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Buffer(torch.zeros(3, 1))

    def forward(self, x, y):
        for _ in range(3):
            self.weight.sub_(0.1 * x.t() @ (x @ self.weight - y))
        return (x @ self.weight - y).square().mean()


@program("mutation", inputs=lambda: (normal(3, 4), normal(3, 4)), grad=True)
def grad_of_local_writes(x, y):
    z = x * 2
    z.mul_(y)
    z[1].add_(1).mul_(3)
    return z.relu_()
