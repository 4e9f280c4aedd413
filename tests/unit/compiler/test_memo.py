"""Programs that are compiled once for several regions."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import assert_same
from turbine_lite import compile_region
from turbine_lite.compiler import cached, memo
from turbine_lite.compiler.cache_key import CacheKey


@pytest.fixture
def compilations(monkeypatch):
    """The modules that the compiler is given, from an empty memo on."""
    monkeypatch.setattr(memo, "_programs", type(memo._programs)())
    given: list[bytes] = []
    real = cached.compile_to_vmfb

    def counted(module, *rest):
        given.append(module)
        return real(module, *rest)

    for module in (cached, compile_region):
        monkeypatch.setattr(module, "compile_to_vmfb", counted)
    return given


def _layers(scales):
    """Layers with an operator that torch-mlir lacks between them."""

    def function(x):
        for scale in scales:
            x = torch.special.airy_ai(torch.sin(x) * scale + 1)
        return x

    return torch.compile(function, backend="turbine_lite_cpu"), function


def test_equal_layers_are_one_program(compilations):
    run, eager = _layers([2.0, 2.0, 2.0])
    x = torch.randn(3, 5)
    assert_same(run(x), eager(x))
    assert len(compilations) == 1


def test_layers_with_another_constant_are_another_program(compilations):
    run, eager = _layers([2.0, 3.0, 2.0])
    x = torch.randn(3, 5)
    assert_same(run(x), eager(x))
    assert len(compilations) == 2


def test_other_options_make_other_programs(compilations):
    x = torch.randn(7)
    for level in ("O1", "O2", "O1"):
        torch._dynamo.reset()
        run = torch.compile(lambda x: x.exp() + 1, backend="turbine_lite_cpu", options={"opt_level": level})
        assert_same(run(x), x.exp() + 1)
    assert len(compilations) == 2


def test_a_dump_is_of_the_region_itself(compilations, tmp_path):
    run, _ = _layers([2.0, 2.0])
    run = torch.compile(run._torchdynamo_orig_callable, backend="turbine_lite_cpu", options={"dump_dir": str(tmp_path)})
    run(torch.randn(3))
    assert len(list(tmp_path.rglob("torch.mlir"))) == len(compilations) == 2


def _key(name):
    return CacheKey({"program": name})


def test_the_memo_forgets_what_was_used_first(monkeypatch):
    monkeypatch.setattr(memo, "_programs", type(memo._programs)())
    monkeypatch.setattr(memo, "_MOST_BYTES", 5)

    def program(size):
        return memo.Compiled(b"x" * size, None, {}, {})

    memo.put(_key("a"), program(2))
    memo.put(_key("b"), program(2))
    assert memo.get(_key("a")) is not None
    memo.put(_key("c"), program(2))
    assert memo.get(_key("b")) is None
    assert memo.get(_key("a")) is not None
    assert memo.get(_key("c")) is not None
