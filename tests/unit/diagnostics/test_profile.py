"""``turbine_lite.profile``."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import turbine_lite
from turbine_lite.demo import ResNet18
from turbine_lite.diagnostics.dispatches import bytes_of_dispatches, origins_of_dispatches
from turbine_lite.diagnostics.profile import _parts


def _lines_of(function):
    first = function.__code__.co_firstlineno
    return range(first, first + 10)


def test_resnet_18():
    torch.manual_seed(0)
    model, images = ResNet18().eval(), torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        found = turbine_lite.profile(model, images, runs=9)
    assert found.wall_seconds > 0
    parts = _parts([found.last_call])
    assert sum(parts.values()) == pytest.approx(found.last_call.seconds)  # nothing is left out, or counted twice
    assert max(parts, key=parts.get) == "kernels"
    slowest = found.nodes[:3]
    assert all(node.op == "convolution" and "demo.py" in node.source for node in slowest)
    # The 3x3 convolution of 64 to 64 channels over 56x56.
    assert any(node.flops == 2 * 64 * 64 * 9 * 56 * 56 for node in found.nodes)
    assert found.eager.seconds > 0
    assert any("conv" in name for name in found.eager.operators)
    assert found.peaks.flops > 1e9
    text = str(found)
    assert all(node.op in text for node in slowest)
    assert "AOTAutograd's wrapper" in text


def _chain(x, weight):
    y = x @ weight
    return torch.softmax(y * 2, -1)


def test_every_dispatch_comes_from_a_line():
    x, weight = torch.randn(64, 128), torch.randn(128, 256)
    found = turbine_lite.profile(_chain, x, weight, runs=3, options={"extern": "none"})
    (region,) = found.regions
    assert region.driver in ("local-sync", "local-task")
    assert 0 < region.invoke_seconds <= region.seconds
    assert region.dispatches
    lines = _lines_of(_chain)
    for dispatch in region.dispatches:
        assert dispatch.seconds > 0
        assert dispatch.calls == 1
        assert {line.rpartition(":")[0] for line in dispatch.lines} == {__file__}
        assert all(int(line.rpartition(":")[2]) in lines for line in dispatch.lines)
    matmul = next(dispatch for dispatch in region.dispatches if "matmul" in dispatch.name)
    assert matmul.nodes == ("mm",)
    assert matmul.flops == 2 * 64 * 128 * 256
    assert matmul.bytes == 4 * (64 * 128 + 128 * 256 + 64 * 256)
    assert matmul.name in str(found)


def test_all_in_iree_with_parameters_and_two_regions():
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.LayerNorm(64)).eval()

    def function(x):
        return model(torch.special.airy_ai(model(x))).sin()

    with torch.no_grad():
        found = turbine_lite.profile(function, torch.randn(32, 64), runs=3, options={"extern": "none"})
    assert len(found.regions) == 2
    assert all(region.dispatches for region in found.regions)
    assert [node.op for node in found.nodes] == ["aten.special_airy_ai.default"]
    data = json.loads(found.to_json())
    assert data["regions"][0]["dispatches"][0]["lines"]
    assert data["parts"].keys() == found.PARTS.keys()


def test_training_step():
    model = nn.Linear(16, 8)

    def step(x):
        F.mse_loss(model(x), torch.zeros(4, 8)).backward()

    found = turbine_lite.profile(step, torch.randn(4, 16), runs=3)
    assert sum(event.kind == "graph" for event in found.last_call.walk()) == 2


def test_the_backward_pass_of_a_model():
    model = nn.Linear(16, 8)
    found = turbine_lite.profile(model, torch.randn(4, 16), runs=3, backward=True)
    assert model.weight.grad is not None
    assert [event.name for event in found.last_call.walk() if event.kind == "graph"] == ["graph 0", "graph 1"]
    assert [graph.name for graph in found.graphs] == ["graph 0, forward", "graph 1, backward"]
    parts = _parts([found.last_call])
    assert sum(parts.values()) == pytest.approx(found.last_call.seconds)


def test_what_was_compiled_is_profiled_as_what_it_was_made_of():
    function = torch.compile(lambda x: x.sin() * 2 + 1, backend="turbine_lite_cpu")
    assert turbine_lite.profile(function, torch.randn(5), runs=1).regions
    module = torch.compile(nn.Softmax(-1), backend="turbine_lite_cpu")
    assert turbine_lite.profile(module, torch.randn(5, 3), runs=1).wall_seconds > 0


def test_dynamic_sizes():
    found = turbine_lite.profile(lambda x: torch.softmax(x * 2, -1), torch.randn(8, 9), runs=2, dynamic=True)
    assert found.regions[0].dispatches
    assert found.regions[0].dispatches[0].bytes is None


def test_a_trace_for_perfetto(tmp_path):
    found = turbine_lite.profile(_chain, torch.randn(8, 8), torch.randn(8, 8), runs=1, options={"extern": "none"})
    found.write_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    ours = {event["name"] for event in events if event["ph"] == "X"}
    assert {"call", "captured"} <= ours
    assert {dispatch.name for dispatch in found.regions[0].dispatches} <= ours
    # torch's profiler saw the same call, at the same time.
    inside = next(event for event in events if event["name"] == "captured")
    around = next(event for event in events if event["name"] == "turbine_lite.profile")
    assert around["ts"] - 50 <= inside["ts"] <= inside["ts"] + inside["dur"] <= around["ts"] + around["dur"] + 50


def test_no_runs():
    with pytest.raises(ValueError, match="runs must be above 0, not 0"):
        turbine_lite.profile(torch.sin, torch.randn(3), runs=0)


_SOURCES = """\
module {
  hal.executable private @main$async_dispatch_0 {
    hal.executable.export public @main$async_dispatch_0_matmul_f32 ordinal(0) {
      hal.return loc(callsite("fx/mm":0:0 at "/m.py":3:0))
    } loc(fused[callsite("fx/mm":0:0 at "/m.py":3:0), callsite("fx/add":0:0 at "/m.py":4:0)])
  }
  hal.executable private @main$async_dispatch_1 {
    hal.executable.export public @main$async_dispatch_1_copy ordinal(0) {
    } loc("fx/output":0:0)
  }
  func.func @main() loc("fx/arg0_1":0:0)
}
"""


def test_origins():
    first, second = origins_of_dispatches(_SOURCES).items()
    assert first == ("main$async_dispatch_0_matmul_f32", first[1])
    assert first[1].nodes == ("mm", "add")
    assert first[1].lines == (("/m.py", 3), ("/m.py", 4))
    assert second[1].nodes == ("output",)


def test_bytes():
    flow = (
        "%4 = flow.dispatch @e::@one(%2, %3) : (tensor<64x128xf32, #enc<[f32]>>, tensor<i64>) -> tensor<4xi1> loc(x)\n"
        "%5 = flow.dispatch @e::@two[%d](%4) : (tensor<?x2xf32>{%d}) -> tensor<?xf32>{%d}\n"
    )
    assert bytes_of_dispatches(flow) == {"one": 64 * 128 * 4 + 8 + 4}
