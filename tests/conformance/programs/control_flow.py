"""Control flow, and shapes that depend on data or vary between calls."""

from __future__ import annotations

import torch
from torch import nn
from torch._higher_order_ops.while_loop import while_loop

from tests.conformance.programs.harness import flags, ints, normal, program


@program("control", inputs=(lambda: (torch.ones(3),), lambda: (-torch.ones(3),)), eager={"cond": "effect"})
def conditional(x):
    return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))


@program(
    "control",
    inputs=(lambda: (normal(3, 4), torch.tensor(True)), lambda: (normal(3, 4), torch.tensor(False))),
    eager={"cond": "effect"},
)
class ConditionalLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x, p):
        y = torch.cond(p, lambda x: self.first(x).relu(), lambda x: self.second(x).tanh(), (x,))
        return y.sum(1)


@program("control", inputs=lambda: (normal(3), torch.tensor(0)), eager={"while_loop": "effect"})
def repeated_while(x, n):
    return while_loop(lambda x, n: n < 4, lambda x, n: (x * 0.5 + 1, n + 1), (x, n))


@program("control", inputs=lambda: (normal(3, 4),))
def unrolled_loop(x):
    for step in range(4):
        x = x * 0.5 + step if step % 2 else x.relu() - step
    return x


@program("control", inputs=(lambda: (normal(3), 2), lambda: (normal(3), 5)))
def loop_of_given_length(x, steps):
    for _ in range(steps):
        x = x.sin() + 0.1
    return x


@program("control", inputs=(lambda: (torch.ones(3),), lambda: (-torch.ones(3),)), breaks=True)
def branch_on_data(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y.exp()


@program("control", inputs=(lambda: (normal(3), True), lambda: (normal(3), False), lambda: (normal(3), None)))
def branch_on_argument(x, how):
    if how is None:
        return x.exp()
    return x * 2 if how else x - 1


@program("control", inputs=lambda: (normal(3, 4),), breaks=True)
def printed_number(x):
    y = x.sin()
    scale = float(y.abs().max()) + 1.0
    return (x / scale).cos()


@program("control", inputs=lambda: (normal(3, 4),), grad=True)
def grad_of_checkpoint(x):
    def block(x):
        return (x.sin() * x).exp()

    return torch.utils.checkpoint.checkpoint(block, x * 2, use_reentrant=False)


@program("control", inputs=lambda: (normal(3, 4),))
def derivative_inside(x):
    return torch.func.grad(lambda x: (x.sin() * x).sum())(x) + 1, torch.func.vmap(lambda row: row.softmax(0))(x)


@program("data_dependent", inputs=lambda: (ints(3, 4, low=0, high=2),), breaks=True)
def nonzero(n):
    return torch.nonzero(n + 0) * 2


@program("data_dependent", inputs=lambda: (normal(3, 4),), breaks=True)
def selected_by_mask(x):
    y = x * 3
    return torch.masked_select(y, y > 0).exp(), y[y < 0].sum()


@program("data_dependent", inputs=(lambda: (torch.tensor([1, 2, 2]),), lambda: (torch.tensor([3, 0, 1]),)), breaks=True)
def lengths_repeated(n):
    return torch.repeat_interleave(torch.arange(3) * 2, n + 0) - 1


@program("data_dependent", inputs=lambda: (normal(4, 5), ints(6, low=0, high=4)), breaks=True)
def rows_once(x, n):
    return (x * 2)[torch.unique(n)].sum(0)


@program("data_dependent", inputs=lambda: (normal(5, 3), torch.tensor(2)), breaks=True)
def length_from_tensor(x, n):
    return (x * 2)[: n.item()].sum(0) + 1


@program("data_dependent", inputs=lambda: (normal(3, 4), flags(3, 4)), breaks=True)
def written_by_where(x, p):
    rows, columns = torch.where(p)
    y = x * 1.0
    y[rows, columns] = 0.5
    return y


@program("dynamic", inputs=(lambda: (normal(3, 4),), lambda: (normal(5, 7),)), dynamic=True)
def pointwise(x):
    return x * x.shape[0] + x.sin(), x.softmax(-1)


@program("dynamic", inputs=(lambda: (normal(3, 4),), lambda: (normal(6, 4),)), dynamic=True)
class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))

    def forward(self, x):
        return self.layers(x)


@program("dynamic", inputs=(lambda: (normal(2, 6),), lambda: (normal(5, 8),)), dynamic=True)
def views(x):
    return x.view(-1) + 1, x.reshape(x.shape[0], 2, -1).transpose(0, 1), x[:, ::2] * 2, x.flatten().shape[0]


@program("dynamic", inputs=(lambda: (normal(2, 6), normal(3, 6)), lambda: (normal(4, 5), normal(2, 5))), dynamic=True)
def concatenated(x, y):
    return torch.cat([x, y]).sum(1), x @ y.t(), torch.arange(x.shape[1]) * 2, torch.zeros(y.shape[0]) + 1


@program("dynamic", inputs=(lambda: (normal(2, 3, 5, 6),), lambda: (normal(1, 3, 8, 7),)), dynamic=True)
class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x):
        return nn.functional.max_pool2d(self.conv(x).relu(), 2).mean((2, 3))


@program("dynamic", inputs=(lambda: (normal(2, 2, 4, 4),), lambda: (normal(2, 2, 7, 4),)), dynamic=True)
def causal_attention(x):
    return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


@program("dynamic", inputs=(lambda: (ints(2, 5, low=0, high=9),), lambda: (ints(3, 4, low=0, high=9),)), dynamic=True)
class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 4)
        self.positions = nn.Embedding(6, 4)

    def forward(self, n):
        return (self.embedding(n) + self.positions(torch.arange(n.shape[1]))).mean(1)


@program("dynamic", inputs=(lambda: (normal(3, 4), 2), lambda: (normal(5, 4), 3)), dynamic=True)
def integer_argument(x, k):
    return x[:k] * k, x.roll(1, 0) + k / 2


@program("dynamic", inputs=(lambda: (normal(3, 4), 0.5), lambda: (normal(5, 4), 0.25)), dynamic=True)
def float_argument(x, scale):
    return x * scale, x.clamp(max=scale)


@program("dynamic", inputs=(lambda: (normal(3, 4),), lambda: (normal(5, 4),)), dynamic=True)
def written_slices(x):
    y = x.clone()
    y[1:] += x[:-1]
    x[0] = 1.0
    return y, x.cumsum(0)


@program("dynamic", inputs=(lambda: (normal(3, 4),), lambda: (normal(6, 5),)), dynamic=True, grad=True)
def grad_of_pointwise(x):
    return (x.sin() * x).sum(1), x.softmax(0), x[1:] * 2


@program("dynamic", inputs=(lambda: (normal(3, 4),), lambda: (normal(6, 4),)), dynamic=True, grad=True)
class GradLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x):
        return self.norm(self.first(x).relu())
