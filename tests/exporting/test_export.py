"""Programs exported as MLIR, compiled by IREE from what was exported, beside eager."""

from __future__ import annotations

import re

import pytest
import torch
from safetensors import safe_open
from torch import nn
from torch.export import Dim

import turbine_lite
from tests.helpers import assert_same, run_jax
from turbine_lite.compiler.dialects import DIALECTS
from turbine_lite.errors import CompilationError, OptionError, UnsupportedError

_TEXT = [name for name in DIALECTS if name != "vmfb"]


class Net(nn.Module):
    """Parameters, a tied one, buffers (one not persistent), a constant, and nested arguments and results."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("scale", torch.rand(8), persistent=False)

    def forward(self, x, *, more):
        y = self.norm(self.first(x)).relu() + torch.tensor([0.5] * 8)
        return {"sum": (y + self.second(more["y"])) * self.scale, "parts": [y, x.argmax(-1)]}


def _net():
    torch.manual_seed(0)
    return Net().eval(), torch.randn(4, 8), {"more": {"y": torch.randn(4, 8)}}


@pytest.mark.parametrize("weights", ["embedded", "external"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_dialects(dialect, weights):
    net, x, kwargs = _net()
    exported = turbine_lite.export(net, x, kwargs=kwargs, dialect=dialect, weights=weights)
    with torch.no_grad():
        assert_same(exported.run(x, **kwargs), net(x, **kwargs))
    assert exported.dialect == dialect
    assert ("first.weight" in exported.weights) == (weights == "external")
    assert "second.weight" not in exported.weights
    assert [spec.name for spec in exported.input_specs] == ["x", "more_y"]
    assert exported.input_specs[0].shape == (4, 8)
    if dialect == "vmfb":
        assert len(exported.bytecode()) > 1000
        with pytest.raises(OptionError, match="no text"):
            exported.mlir_module()
    else:
        text = exported.mlir_module()
        assert text.startswith(("module", "#"))
        assert text.count("dense_resource<") == 0 or weights == "embedded"


@pytest.mark.parametrize("weights", ["embedded", "external"])
@pytest.mark.parametrize("dialect", ["stablehlo", "linalg-on-tensors", "torch"])
def test_saved_text_is_complete(dialect, weights, tmp_path):
    """Another tool (here: IREE, through load_mlir) needs the files and nothing of this process."""
    net, x, kwargs = _net()
    exported = turbine_lite.export(net, x, kwargs=kwargs, dialect=dialect, weights=weights)
    written = exported.save(tmp_path / "net.mlir")
    module = turbine_lite.load_mlir(written[0])
    given = []
    if weights == "external":
        with safe_open(written[1], "pt") as file:
            given = [file.get_tensor(name) for name in file.metadata()["main"].split(",")]
    want = net(x, **kwargs)
    got = module(*given, x, kwargs["more"]["y"])
    assert_same(list(got), [want["sum"].detach(), want["parts"][0].detach(), want["parts"][1]])
    assert turbine_lite.load_mlir(exported.bytecode()).functions == module.functions


def test_stablehlo_is_nothing_but_stablehlo():
    net, x, kwargs = _net()
    text = turbine_lite.export(net, x, kwargs=kwargs).mlir_module()
    assert {name.partition(".")[0] for name in re.findall(r"^ +%\S+ = \"?(\w+\.\w+)", text, re.MULTILINE)} == {
        "stablehlo"
    }
    assert text.count("func.func") == 1
    assert "torch" not in text


def test_jax_reads_what_we_write(tmp_path):
    net, x, kwargs = _net()
    module, *_ = turbine_lite.export(net, x, kwargs=kwargs, weights="external").save(tmp_path / "net.mlir")
    run_jax("read", module)


class Counter(nn.Module):
    """A buffer and an input that are written."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3))
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.count.add_(self.weight)
        x.mul_(2)
        return x + self.count, self.count * 1


@pytest.mark.parametrize("dialect", ["stablehlo", "vmfb"])
@pytest.mark.parametrize("weights", ["embedded", "external"])
def test_what_is_written(dialect, weights):
    net = Counter()
    exported = turbine_lite.export(net, torch.ones(2, 3), dialect=dialect, weights=weights)
    assert exported.entry_points["main"].writes == ("count", "x")
    assert list(exported.weights) == (["weight", "count"] if weights == "external" else ["count"])
    mine, want = torch.ones(2, 3), torch.ones(2, 3)
    with torch.no_grad():
        for _ in range(3):
            assert_same(exported.run(mine), net(want))
            assert_same(mine, want)
    assert_same(exported.weights["count"], net.count)


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("cache", torch.zeros(2, 4))

    def prefill(self, x):
        self.cache.copy_(self.inner(x))
        return self.cache.sum()

    def decode(self, x, scale):
        self.cache[0] = x
        return self.inner(self.cache) * scale


@pytest.mark.parametrize("weights", ["embedded", "external"])
@pytest.mark.parametrize("dialect", ["stablehlo", "linalg-on-tensors", "iree-input"])
def test_entry_points_share_weights_and_state(dialect, weights):
    net = Cached()
    entries = {
        "prefill": turbine_lite.EntryPoint("prefill", (torch.randn(2, 4),)),
        "decode": turbine_lite.EntryPoint("decode", (torch.randn(4), 2.0)),
    }
    exported = turbine_lite.export(net, entry_points=entries, dialect=dialect, weights=weights)
    text = exported.mlir_module()
    assert "@prefill" in text
    assert "@decode" in text
    names = ["inner.weight", "inner.bias", "cache"] if weights == "external" else ["cache"]
    assert list(exported.weights) == names
    x, y = torch.randn(2, 4), torch.randn(4)
    with torch.no_grad():
        assert_same(exported.run(x, entry_point="prefill"), net.prefill(x))
        assert_same(exported.run(y, 2.0, entry_point="decode"), net.decode(y, 2.0))
    with pytest.raises(TypeError, match=r"exported as 2.0"):
        exported.run(y, 3.0, entry_point="decode")
    if weights == "embedded" and dialect == "stablehlo":
        assert len(re.findall(r"^ +inner.weight: ", text, re.MULTILINE)) <= 1  # one constant for both


@pytest.mark.parametrize("weights", ["embedded", "external"])
def test_state_that_one_entry_point_writes_and_another_only_reads(weights):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.zeros(3))

        def put(self, x):
            self.cache.copy_(x)
            return x + 1

        def get(self, x):
            return self.cache * x

    x = torch.randn(3)
    entries = {name: turbine_lite.EntryPoint(name, (x,)) for name in ("put", "get")}
    exported = turbine_lite.export(Model(), entry_points=entries, dialect="linalg-on-tensors", weights=weights)
    assert_same(exported.run(x, entry_point="get"), torch.zeros(3) * x)
    exported.run(x, entry_point="put")
    assert_same(exported.run(x, entry_point="get"), x * x)


def test_dynamic_sizes_and_their_bounds():
    batch = Dim("batch", min=2, max=9)

    def function(x, y):
        return torch.softmax(x @ y, -1), x.shape[0] * x

    shapes = {"x": {0: batch}, "y": {}}
    for dialect in ("linalg-on-tensors", "torch", "vmfb"):
        exported = turbine_lite.export(
            function, torch.randn(4, 5), torch.randn(5, 6), dynamic_shapes=shapes, dialect=dialect
        )
        (spec, other) = exported.input_specs
        assert list(spec.bounds.values()) == [(2, 9)]
        assert other.bounds == {}
        for size in (2, 7, 9):
            x, y = torch.randn(size, 5), torch.randn(5, 6)
            assert_same(exported.run(x, y), function(x, y))
        for size in (1, 10):
            with pytest.raises(ValueError, match="2 to 9"):
                exported.run(torch.randn(size, 5), torch.randn(5, 6))


def test_what_can_be_exported():
    x = torch.randn(3, 4)
    linear = nn.Linear(4, 2).eval()
    exported_program = torch.export.export(linear, (x,))
    scripted = _scripted(linear)
    for program, args in ((linear, (x,)), (torch.sin, (x,)), (exported_program, ()), (scripted, (x,))):
        exported = turbine_lite.export(program, *args, dialect="linalg-on-tensors")
        want = torch.sin(x) if program is torch.sin else linear(x).detach()
        assert_same(exported.run(x), want)
    with pytest.raises(UnsupportedError, match="possible are modules, functions and exported programs"):
        turbine_lite.export(3, x)


def _scripted(module):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated; programs that have it stay
        return torch.jit.script(module)


def test_layouts_of_memory_do_not_matter():
    conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last).eval()
    images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    exported = turbine_lite.export(conv, images, weights="external")
    with torch.no_grad():
        assert_same(exported.run(images), conv(images), strides=False)
        assert_same(exported.run(images.contiguous()), conv(images), strides=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.bool, torch.uint8])
def test_dtypes(dtype):
    weight = torch.arange(40).reshape(8, 5).to(dtype)

    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", weight)

        def forward(self, x):
            return torch.where(self.weight > 0, x, self.weight), self.weight

    x = torch.arange(40).flip(0).reshape(8, 5).to(dtype)
    for weights in ("embedded", "external"):
        exported = turbine_lite.export(Product(), x, dialect="linalg-on-tensors", weights=weights)
        assert_same(exported.run(x), Product()(x))


def test_results_are_memory_of_their_own():
    net = nn.Identity()
    x = torch.randn(4)
    exported = turbine_lite.export(net, x, dialect="stablehlo")
    result = exported.run(x)
    assert_same(result, x)
    result.zero_()
    assert x.abs().sum() > 0


def test_arguments_are_not_written():
    def function(x, at, new):
        return x.index_put((at,), new) + 1

    x, at, new = torch.zeros(6, 4), torch.tensor([1, 3]), torch.ones(2, 4)
    for dialect in ("linalg-on-tensors", "torch", "vmfb"):
        exported = turbine_lite.export(function, x, at, new, dialect=dialect)
        assert_same(exported.run(x, at, new), function(x, at, new))
        assert not x.any()


def _negative_indices(x, at, values):
    return x.index_put((at,), values), x[at], x[at, at.flip(0)]


def _compared_and_rounded(x, at, values):
    gelu = torch.nn.functional.gelu(x, approximate="tanh")
    return gelu, torch.maximum(x / x, x), x.isfinite(), at // 3, -at, x.clamp(-1, 1)


@pytest.mark.parametrize("dialect", ["linalg-on-tensors", "stablehlo", "torch", "vmfb"])
@pytest.mark.parametrize("function", [_negative_indices, _compared_and_rounded])
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_values_that_lowerings_get_wrong(function, dialect, is_dynamic):
    x, at, values = torch.randn(6, 6), torch.tensor([-1, 0, -4]), torch.zeros(3, 6)
    x[0, :3] = torch.tensor([0.0, torch.inf, torch.nan])
    shapes = ({0: Dim("rows", min=2)}, {0: (picked := Dim("picked", min=2))}, {0: picked}) if is_dynamic else None
    exported = turbine_lite.export(function, x, at, values, dialect=dialect, dynamic_shapes=shapes)
    assert_same(exported.run(x, at, values), function(x, at, values), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dialect", ["linalg-on-tensors", "stablehlo", "torch"])
def test_dynamic_sizes_that_are_merged_and_split(dialect):
    def function(x):
        rows = (x * 2).view(-1, x.shape[2])
        return rows @ torch.ones(8, 4), (rows + 1).view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2)

    shapes = ({0: Dim("batch", max=16), 1: Dim("length", max=64)},)
    exported = turbine_lite.export(function, torch.randn(2, 3, 8), dialect=dialect, dynamic_shapes=shapes)
    for sizes in ((2, 3), (1, 5), (4, 1)):
        x = torch.randn(*sizes, 8)
        assert_same(exported.run(x), function(x), strides=False)


def test_errors():
    x = torch.randn(3)
    with pytest.raises(OptionError, match="unknown dialect 'mhlo'; known: torch, "):
        turbine_lite.export(torch.sin, x, dialect="mhlo")
    with pytest.raises(OptionError, match="embedded or external"):
        turbine_lite.export(torch.sin, x, weights="inline")
    with pytest.raises(OptionError, match="belong to the entry points"):
        turbine_lite.export(torch.sin, x, entry_points={"a": turbine_lite.EntryPoint("forward", (x,))})
    with pytest.raises(UnsupportedError, match="no method 'nothing'"):
        turbine_lite.export(nn.ReLU(), entry_points={"a": turbine_lite.EntryPoint("nothing", (x,))})
    with pytest.raises(CompilationError, match="airy_ai") as failure:
        turbine_lite.export(torch.special.airy_ai, x).mlir_module()
    assert failure.value.stage in ("import", "lower")
    exported = turbine_lite.export(torch.sin, x)
    with pytest.raises(TypeError, match="float32"):
        exported.run(x.double())
    with pytest.raises(ValueError, match=r"\[3\].*got the shape \[4\]"):
        exported.run(torch.randn(4))
    with pytest.raises(TypeError, match="structure"):
        exported.run(x, x)
    with pytest.raises(OptionError, match="unknown entry point"):
        exported.run(x, entry_point="other")
