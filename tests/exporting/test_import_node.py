"""Single operators as MLIR."""

from __future__ import annotations

import json

import pytest
import torch
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.fx.passes.shape_prop import ShapeProp

import turbine_lite
from tests.exporting.import_node_table import DIALECTS, TABLE, operators, run_row
from tests.helpers import assert_same
from turbine_lite.errors import CompilationError, OptionError, UnsupportedError

aten = torch.ops.aten


@pytest.mark.parametrize("dialect", ["torch", "torch-backend", "linalg-on-tensors", "tosa", "stablehlo", "iree-input"])
def test_an_operator_in_each_dialect(dialect):
    args = (torch.randn(128), torch.randn(64, 32), torch.randn(32, 128))
    imported = turbine_lite.import_node(aten.addmm, *args, dialect=dialect)
    text = str(imported)
    assert "64" in text
    assert {"stablehlo": "stablehlo.dot_general", "tosa": "tosa.matmul", "torch": "torch.aten.addmm"}.get(
        dialect, "main"
    ) in text
    assert imported.bytecode().startswith(b"ML\xefR")
    if dialect not in ("iree-input",):
        assert_same(turbine_lite.load_mlir(imported.bytecode())(*args), torch.addmm(*args))


def test_overloads_tuples_lists_and_keywords():
    x = torch.randn(3, 4)
    assert "torch.aten.sum.dim_IntList" in str(turbine_lite.import_node(aten.sum, x, [1], dialect="torch"))
    assert "torch.aten.sum " in str(turbine_lite.import_node(aten.sum, x, dialect="torch"))
    assert str(turbine_lite.import_node(aten.topk.default, x, 2)).count("tensor<3x2xi64>") >= 1
    assert "tensor<6x4xf32>" in str(turbine_lite.import_node(aten.cat, [x, x]))
    text = str(turbine_lite.import_node(aten.add.Tensor, x, x, kwargs={"alpha": 3}, dialect="torch"))
    assert "int3" in text


def _node(gm, target):
    (node,) = [node for node in gm.graph.nodes if node.target is target]
    return node


def _traced():
    return torch.fx.symbolic_trace(lambda x, y: aten.relu.default(aten.mm.default(x, y)))


def test_metadata_of_every_kind():
    x, y = torch.randn(3, 4), torch.randn(4, 5)
    wanted = "tensor<3x4xf32>, %arg1: tensor<4x5xf32>) -> tensor<3x5xf32>"
    gm = _traced()
    with pytest.raises(UnsupportedError, match="nothing is known of x: neither val nor tensor_meta"):
        turbine_lite.import_node(_node(gm, aten.mm.default))
    FakeTensorProp(gm).propagate(x, y)
    assert wanted in str(turbine_lite.import_node(_node(gm, aten.mm.default)))
    gm = _traced()
    ShapeProp(gm).propagate(x, y)
    assert "val" not in _node(gm, aten.mm.default).meta
    assert wanted in str(turbine_lite.import_node(_node(gm, aten.mm.default)))
    gm = _traced()
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), (x, y), strict=True):
        node.meta["val"] = value  # a real tensor
    assert wanted in str(turbine_lite.import_node(_node(gm, aten.mm.default)))


def test_nodes_of_an_exported_program_with_dynamic_sizes():
    shapes = ({0: torch.export.Dim("n", min=2, max=99)},)
    program = torch.export.export(torch.nn.Linear(4, 5), (torch.randn(3, 4),), dynamic_shapes=shapes)
    (linear,) = [node for node in program.graph.nodes if node.op == "call_function"]
    text = str(turbine_lite.import_node(linear))
    assert "tensor<?x4xf32>" in text
    x, weight, bias = torch.randn(7, 4), torch.randn(5, 4), torch.randn(5)
    assert_same(turbine_lite.load_mlir(text)(x, weight, bias), torch.nn.functional.linear(x, weight, bias))


@pytest.mark.parametrize("dialect", ["stablehlo", "linalg-on-tensors"])
@pytest.mark.parametrize("package", ["torch_mlir", "iree.compiler"])
def test_inlined_into_another_module(package, dialect):
    ir = pytest.importorskip(f"{package}.ir")
    softmax = turbine_lite.import_node(aten._softmax.default, torch.randn(4, 8), -1, False, dialect=dialect)
    with ir.Context() as context, ir.Location.unknown():
        if package == "torch_mlir":
            from torch_mlir.dialects import torch as torch_dialect

            torch_dialect.register_dialect(context)
        module = ir.Module.parse(
            "func.func @main(%a: tensor<4x8xf32>) -> tensor<4x8xf32> { return %a : tensor<4x8xf32> }"
        )
        block = module.body.operations[0].regions[0].blocks[0]
        end = block.operations[0]
        (once,) = softmax.inline_into(ir.InsertionPoint(end), [block.arguments[0]])
        (twice,) = softmax.inline_into(ir.InsertionPoint(end), [once])
        end.operation.operands[0] = twice
        assert module.operation.verify()
        text = str(module)
        with pytest.raises(UnsupportedError, match="the operator takes"):
            softmax.inline_into(ir.InsertionPoint(end), [])
    x = torch.randn(4, 8)
    assert_same(turbine_lite.load_mlir(text)(x), x.softmax(-1).softmax(-1))


def test_errors():
    x = torch.randn(3)
    with pytest.raises(OptionError, match="unknown dialect 'vmfb'"):
        turbine_lite.import_node(aten.sin, x, dialect="vmfb")
    with pytest.raises(UnsupportedError, match="possible are FX nodes and operators"):
        turbine_lite.import_node(torch.sin, x)
    with pytest.raises(UnsupportedError, match="cannot be known from shapes"):
        turbine_lite.import_node(aten.item.default, torch.ones(()))
    with pytest.raises(CompilationError, match="airy_ai"):
        turbine_lite.import_node(aten.special_airy_ai.default, x)
    with pytest.raises(UnsupportedError, match="only calls of operators"):
        turbine_lite.import_node(next(iter(_traced().graph.nodes)))


def test_the_table_has_200_operators():
    table = json.loads(TABLE.read_text())
    assert len(table) >= 200
    assert set(table) == set(operators())
    for row in table.values():
        assert set(row) == set(DIALECTS)
        assert not any(status.startswith("CRASH") for status in row.values())


@pytest.mark.parametrize(
    "name", ["add", "nn.functional.conv2d", "nn.functional.group_norm", "nn.functional.layer_norm", "atan2"]
)
def test_rows_of_the_table(name):
    assert run_row(name) == json.loads(TABLE.read_text())[name]
