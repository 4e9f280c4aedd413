"""One rank: ``torchrun worker.py <case>``. An error, or a difference from eager, is a non-zero exit status."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import nn
from torch._dynamo.utils import counters
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

STEPS = 4
VOCABULARY, WIDTH, LENGTH, BATCH = 40, 16, 8, 4


class Block(nn.Module):
    """An encoder layer, called by code that is not PyTorch's own: Dynamo starts no graph in the latter."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.1, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x)
        return out


class Transformer(nn.Module):
    """Embedding, two blocks (not in a loop: FSDP's hooks break graphs, and Dynamo leaves loops with breaks), head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.first, self.second = Block(), Block()
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.first(self.embedding(ids))
        x = self.second(x)
        out: torch.Tensor = self.head(x)
        return out


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A sharded tensor's values from all ranks."""
    tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return tensor.detach().clone()


def train(model: nn.Module, call: Callable[..., torch.Tensor]) -> dict[str, torch.Tensor]:
    """Losses of each step, the first step's gradients, the last parameters."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    seen: dict[str, torch.Tensor] = {}
    torch.manual_seed(10 + dist.get_rank())  # of dropout
    for step in range(STEPS):
        data = torch.Generator().manual_seed(100 * step + dist.get_rank())  # each rank its own
        ids = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=data)
        loss = nn.functional.cross_entropy(call(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        seen[f"loss {step}"] = loss.detach()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            seen[f"gradient {step} {name}"] = whole(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
    for name, parameter in model.named_parameters():
        seen[f"parameter {name}"] = whole(parameter)
    return seen


def compare(got: dict[str, torch.Tensor], want: dict[str, torch.Tensor]) -> None:
    assert list(got) == list(want)
    for name, value in want.items():
        torch.testing.assert_close(
            got[name], value, rtol=1e-3, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )


def _two() -> tuple[Transformer, Transformer]:
    torch.manual_seed(0)
    model = Transformer().train()
    return model, copy.deepcopy(model)


def ddp() -> None:
    model, twin = (DistributedDataParallel(one) for one in _two())
    compare(train(twin, torch.compile(twin, backend="turbine_lite_cpu")), train(model, model))
    assert counters["turbine_lite"]["executables"] >= 2, dict(counters["turbine_lite"])


def _shard(model: Transformer) -> None:
    for module in (model.first, model.second, model):
        fully_shard(module)


def fsdp() -> None:
    """Each block is compiled, then they and the model are sharded."""
    model, twin = _two()
    twin.first.compile(backend="turbine_lite_cpu")
    twin.second.compile(backend="turbine_lite_cpu")
    _shard(model)
    _shard(twin)
    compare(train(twin, twin), train(model, model))
    assert counters["turbine_lite"]["executables"] >= 2, dict(counters["turbine_lite"])


def fsdp_whole() -> None:
    """The sharded model is compiled as a whole; Dynamo leaves FSDP's hooks outside of the graphs."""
    model, twin = _two()
    _shard(model)
    _shard(twin)
    compare(train(twin, torch.compile(twin, backend="turbine_lite_cpu")), train(model, model))
    assert counters["turbine_lite"]["executables"] >= 2, dict(counters["turbine_lite"])


def in_graph() -> None:
    """Collectives within one graph, with computation before and after, forward and backward."""
    group = dist.group.WORLD

    def function(x: torch.Tensor) -> Any:
        total = collectives.all_reduce(x.exp() * 2, "sum", group)
        rows = collectives.all_gather_tensor((x * total).tanh(), gather_dim=0, group=group)
        part = collectives.reduce_scatter_tensor(rows * 3, "sum", scatter_dim=0, group=group)
        return total.relu() + 1, rows.square().sum(0), part * x

    torch.manual_seed(dist.get_rank())
    x = torch.randn(3, 5)
    compiled = torch.compile(function, backend="turbine_lite_cpu", fullgraph=True)
    for _ in range(3):
        x = x * 0.9
        for got, want in zip(compiled(x), function(x), strict=True):
            torch.testing.assert_close(got, torch.as_tensor(want), rtol=1e-4, atol=1e-5)
    assert counters["turbine_lite"]["graphs"] == 1
    assert counters["turbine_lite"]["executables"] >= 3


CASES = {function.__name__: function for function in (ddp, fsdp, fsdp_whole, in_graph)}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        CASES[sys.argv[1]]()
        dist.barrier()
        print("finished", flush=True)  # what follows is said at exit
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
