"""Functions that stay recognisable in StableHLO."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import turbine_lite
from tests.helpers import assert_same
from turbine_lite.errors import OptionError


def _attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


attention = turbine_lite.composite(
    _attention, "mylib.attention", is_causal=True, scale=0.25, heads=4, dims=[1, 2], kind='a"b'
)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.projection = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, 4)).transpose(1, 2) for part in self.projection(x).chunk(3, -1))
        return attention(q, k, v).transpose(1, 2).flatten(2) + x


def _calls(text, what):
    return [line.strip() for line in text.splitlines() if what in line]


@pytest.mark.parametrize("as_program", [False, True])
def test_attention_is_one_operation(as_program):
    block, x = Block().eval(), torch.randn(2, 5, 16)
    program, args = (torch.export.export(block, (x,)), ()) if as_program else (block, (x,))
    exported = turbine_lite.export(program, *args)
    text = exported.mlir_module()
    (call,) = _calls(text, "stablehlo.composite")
    assert 'stablehlo.composite "mylib.attention"' in call
    for attribute in (
        "is_causal = true",
        "scale = 2.500000e-01 : f32",
        "heads = 4 : i64",
        "dims = [1, 2]",
        'kind = "a\\22b"',
    ):
        assert attribute in call
    assert "decomposition = @mylib.attention.impl" in call
    (function,) = _calls(text, "func.func private")
    assert "@mylib.attention.impl" in function
    body = text[text.index("func.func private") :]
    assert "dot_general" in body
    with torch.no_grad():
        assert_same(exported.run(x), block(x))
        assert_same(turbine_lite.load_mlir(text)(x), block(x))


@pytest.mark.parametrize("dialect", ["torch", "torch-backend", "linalg-on-tensors", "tosa"])
def test_a_call_of_a_private_function_elsewhere(dialect):
    block, x = Block().eval(), torch.randn(2, 5, 16)
    exported = turbine_lite.export(block, x, dialect=dialect)
    text = exported.mlir_module()
    assert len(_calls(text, "func.func private @mylib.attention.impl")) == 1
    assert len(_calls(text, "call @mylib.attention.impl(")) == 1
    if dialect != "tosa":  # IREE 3.13 takes no float64 in TOSA, which the attention's scale is
        with torch.no_grad():
            assert_same(exported.run(x), block(x))


def test_torch_compile_and_eager_see_the_function():
    block, x = Block().eval(), torch.randn(2, 5, 16)
    torch._dynamo.reset()
    compiled = torch.compile(block, backend="turbine_lite_cpu", fullgraph=True)
    with torch.no_grad():
        assert_same(compiled(x), block(x))
        assert torch.equal(attention(x, x, x), _attention(x, x, x))
    assert attention.__name__ == "_attention"


def test_nested_several_and_shared_with_the_outside():
    weight = torch.randn(4)
    inner = turbine_lite.composite(lambda x: x.sin() * weight, "mylib.inner")
    pair = turbine_lite.composite(lambda x, y: (inner(x) + y, y.cos()), "mylib.pair", n=1)
    unused = turbine_lite.composite(lambda x, y: x.exp(), "mylib.unused")

    def function(x, y):
        one, two = pair(x, y)
        three, _ = pair(one, two)
        return unused(three, x) + inner(two), inner(x)

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    exported = turbine_lite.export(function, x, y)
    text = exported.mlir_module()
    main = text[text.index("@main") :]
    main = main[: main.index("\n  }")]
    names = [line.split('"')[1] for line in _calls(main, "stablehlo.composite")]
    assert sorted(names) == ["mylib.inner", "mylib.inner", "mylib.pair", "mylib.pair", "mylib.unused"]
    assert len(_calls(text, "stablehlo.composite")) == 7  # pair calls inner
    assert_same(exported.run(x, y), function(x, y))


def test_dynamic_sizes():
    double = turbine_lite.composite(lambda x: x * 2, "mylib.double")
    exported = turbine_lite.export(
        lambda x: double(x.tanh()) + 1, torch.randn(3, 4), dynamic_shapes=({0: torch.export.Dim("n", max=9)},)
    )
    assert "tensor<?x4xf32>" in _calls(exported.mlir_module(), "stablehlo.composite")[0]
    x = torch.randn(5, 4)
    assert_same(exported.run(x), x.tanh() * 2 + 1)


@pytest.mark.parametrize(
    ("name", "attributes"), [("plain", {}), ("a b.c", {}), ("a.b", {"x": object()}), ("a.b", {"x": float("nan")})]
)
def test_names_and_attributes_that_mlir_has_not(name, attributes):
    with pytest.raises(OptionError, match=r"namespace|possible are"):
        turbine_lite.composite(torch.sin, name, **attributes)
