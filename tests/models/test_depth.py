"""A model of 200 layers, whole and with one operator in the middle that IREE cannot run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from tests.helpers import relative_error

LAYERS = 200
WIDTH = 16


class Deep(nn.Module):
    def __init__(self, middle: str | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.middle = middle

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            x = x + 0.1 * nn.functional.gelu(layer(x))
            if index == LAYERS // 2:
                if self.middle == "custom-op":
                    x = torch.ops.turbine_lite_test.halve(x)
                elif self.middle == "random":
                    x = x + torch.bernoulli(torch.sigmoid(x))
        return x


@pytest.fixture(autouse=True)
def _custom_op() -> Iterator[None]:
    with torch.library._scoped_library("turbine_lite_test", "FRAGMENT") as library:
        library.define("halve(Tensor x) -> Tensor")
        library.impl("halve", lambda x: x / 2, "CompositeExplicitAutograd")
        torch.library.register_fake("turbine_lite_test::halve", torch.empty_like, lib=library)
        yield


@pytest.mark.parametrize(
    ("middle", "regions", "eager"),
    [
        (None, 1, {}),
        ("custom-op", 2, {"eager turbine_lite_test.halve.default: custom-op": 1}),
        ("random", 2, {"eager aten.bernoulli.default: random": 1}),
    ],
    ids=["whole", "custom-op", "random"],
)
def test_two_hundred_layers(middle, regions, eager):
    torch.manual_seed(0)
    model = Deep(middle).eval()
    x = torch.randn(4, WIDTH)
    compiled = torch.compile(model, backend="turbine_lite_cpu", fullgraph=True)
    with torch.no_grad():
        torch.manual_seed(1)
        want = model(x)
        torch.manual_seed(1)
        got = compiled(x)
    assert relative_error(got, want) < 1e-4
    counts = counters["turbine_lite"]
    assert counts["graphs"] == 1
    assert counts["executables"] == regions
    assert {key: count for key, count in counts.items() if key.startswith("eager")} == eager
