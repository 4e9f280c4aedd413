"""MLIR that others wrote."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import turbine_lite
from tests.helpers import assert_same, run_jax
from turbine_lite.errors import CompilationError, OptionError

_STABLEHLO = """
module @add {
  func.func public @main(%arg0: tensor<?x4xf32> loc("x"), %arg1: tensor<4xf32> {jax.arg_info = "bias"})
      -> (tensor<?x4xf32>) {
    %0 = func.call @twice(%arg0) : (tensor<?x4xf32>) -> tensor<?x4xf32>
    return %0 : tensor<?x4xf32>
  }
  func.func private @twice(%arg0: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<?x4xf32>
    return %0 : tensor<?x4xf32>
  }
  func.func @second(%arg0: tensor<2xui8>, %arg1: tensor<2xi1>) -> (tensor<2xi1>, tensor<2xui8>) {
    %0 = stablehlo.not %arg1 : tensor<2xi1>
    return %0, %arg0 : tensor<2xi1>, tensor<2xui8>
  }
}
"""
_TOSA = """
func.func @negate(%arg0: tensor<3x2xf32>) -> tensor<3x2xf32> {
  %0 = tosa.exp %arg0 : (tensor<3x2xf32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}
"""
_LINALG = """
func.func @main(%x: tensor<4xf32>, %n: i32) -> tensor<4xf32> {
  %empty = tensor.empty() : tensor<4xf32>
  %f = arith.sitofp %n : i32 to f32
  %0 = linalg.generic
      {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf32>) outs(%empty : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %1 = arith.mulf %in, %f : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
_TORCH = """
func.func @main(%x: !torch.vtensor<[2,3],f32>, %y: !torch.vtensor<[3],si64>) -> !torch.vtensor<[2,3],f32> {
  %int1 = torch.constant.int 1
  %0 = torch.aten.add.Tensor %x, %y, %int1
      : !torch.vtensor<[2,3],f32>, !torch.vtensor<[3],si64>, !torch.int -> !torch.vtensor<[2,3],f32>
  return %0 : !torch.vtensor<[2,3],f32>
}
"""


def test_stablehlo_with_functions_names_and_dynamic_sizes():
    module = turbine_lite.load_mlir(_STABLEHLO)
    x, bias = torch.randn(3, 4), torch.zeros(4)
    assert_same(module(x, bias), x * 2)
    assert_same(module(bias=bias, x=x), x * 2)
    assert_same(module["main"](torch.ones(1, 4), bias), torch.full((1, 4), 2.0))
    got = module["second"](torch.tensor([1, 255], dtype=torch.uint8), torch.tensor([True, False]))
    assert_same(got, (torch.tensor([False, True]), torch.tensor([1, 255], dtype=torch.uint8)))
    assert repr(module).startswith("LoadedModule(main(x: float32[?, 4], bias: float32[4]) -> float32[?, 4]; second(")


def test_numpy_gives_numpy():
    module = turbine_lite.load_mlir(_TOSA, dialect="tosa")
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for given in (x, np.asfortranarray(x), x.tolist()):
        got = module(given)
        assert type(got) is np.ndarray
        np.testing.assert_allclose(got, np.exp(x), rtol=1e-5)


def test_linalg_and_numbers():
    module = turbine_lite.load_mlir(_LINALG)
    x = torch.randn(4)
    assert_same(module(x, 3), x * 3)
    with pytest.raises(TypeError, match="is a number, int32; it got a Tensor"):
        module(x, x)


def test_torch():
    x, y = torch.randn(2, 3), torch.tensor([1, 2, 3])
    assert_same(turbine_lite.load_mlir(_TORCH, "torch")(x, y), x + y)


def test_the_argument_is_read_in_place_and_not_written():
    text = """func.func @main(%x: tensor<64xf32>, %i: tensor<1xi32>, %u: tensor<1xf32>) -> tensor<64xf32> {
      %0 = "stablehlo.scatter"(%x, %i, %u) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        stablehlo.return %b : tensor<f32>
      }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
          index_vector_dim = 1>, unique_indices = true}
          : (tensor<64xf32>, tensor<1xi32>, tensor<1xf32>) -> tensor<64xf32>
      return %0 : tensor<64xf32>
    }"""
    module = turbine_lite.load_mlir(text)
    x = torch.zeros(64)
    got = module(x, torch.tensor([5], dtype=torch.int32), torch.tensor([2.0]))
    assert got[5] == 2
    assert not x.any()


def test_from_a_file(tmp_path):
    (tmp_path / "a.mlir").write_text(_TOSA)
    x = torch.ones(3, 2)
    assert_same(turbine_lite.load_mlir(tmp_path / "a.mlir")(x), x.exp())
    assert_same(turbine_lite.load_mlir(str(tmp_path / "a.mlir"), driver="local-sync")(x), x.exp())
    with pytest.raises(FileNotFoundError):
        turbine_lite.load_mlir(tmp_path / "b.mlir")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("func.func @f( {", "could not read"),
        ("module {}", "no public function"),
        ("func.func @f(%a: tensor<2xcomplex<f32>>) { return }", "complex<f32>"),
        ("func.func @f(%a: tensor<2xf8E4M3FN>) { return }", "tensors of f8E4M3FN cannot be passed"),
        ("func.func @f(%a: memref<2xf32>) { return }", "no tensor or number"),
        (
            "func.func @f(%a: tensor<2xf32>) -> tensor<2xf32> { %0 = stablehlo.nonsense %a : tensor<2xf32> return %0 }",
            "nonsense",
        ),
    ],
)
def test_what_is_no_program(text, said):
    with pytest.raises(CompilationError, match=said):
        turbine_lite.load_mlir(text + "\n")


def test_wrong_calls():
    module = turbine_lite.load_mlir(_STABLEHLO)
    x, bias = torch.randn(3, 4), torch.zeros(4)
    with pytest.raises(ValueError, match=r"input 0 \(x\) of main is float32\[\?, 4\]; it got the shape \[3, 5\]"):
        module(torch.randn(3, 5), bias)
    with pytest.raises(TypeError, match="it got float64"):
        module(x.double(), bias)
    with pytest.raises(TypeError, match="takes 2 inputs, not 1"):
        module(x)
    with pytest.raises(TypeError, match="no input 'z'"):
        module(x, z=bias)
    with pytest.raises(TypeError, match="twice"):
        module(x, bias, x=x)
    with pytest.raises(KeyError, match="no function 'third'; it has main, second"):
        module["third"]
    with pytest.raises(OptionError, match="unknown dialect"):
        turbine_lite.load_mlir(_TOSA, dialect="hlo")
    with pytest.raises(OptionError, match="unknown driver"):
        turbine_lite.load_mlir(_TOSA, driver="gpu")


@pytest.fixture(scope="module")
def jax_wrote(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jax")
    run_jax("write", folder)
    return folder


@pytest.mark.parametrize("form", ["mlir", "bin"])
@pytest.mark.parametrize("name", ["mlp", "conv_net", "transformer_block", "scan"])
def test_jax(name, form, jax_wrote):
    module = turbine_lite.load_mlir(jax_wrote / f"{name}.{form}")
    with np.load(jax_wrote / f"{name}.npz") as arrays:
        args = [value for key, value in arrays.items() if key.startswith("arg")]
        want = [value for key, value in arrays.items() if key.startswith("result")]
    for got in (module(*args), module(*map(torch.from_numpy, args))):
        leaves = got if isinstance(got, tuple) else (got,)
        for a, b in zip(leaves, want, strict=True):
            assert str(a.dtype).removeprefix("torch.") == b.dtype.name
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["dynamic_pool", "dynamic_attention"])
def test_jax_with_dynamic_sizes(name, jax_wrote):
    module = turbine_lite.load_mlir(jax_wrote / f"{name}.mlir")
    with np.load(jax_wrote / f"{name}.npz") as arrays:
        arrays = dict(arrays)
    for number in range(2):
        got = module(arrays[f"arg{number}"])
        want = [value for key, value in arrays.items() if key.startswith(f"result{number}_")]
        for a, b in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", ["?x1", "?x2x1"])
def test_gather_of_numbers_with_dynamic_sizes(sizes):
    kept = sizes.removesuffix("x1")
    module = turbine_lite.load_mlir(f"""
        func.func @main(%x: tensor<?xf32>, %i: tensor<{sizes}xi64>) -> tensor<{kept}xf32> {{
          %r = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
            start_index_map = [0], index_vector_dim = {sizes.count("x")}>, slice_sizes = array<i64: 1>}}>
            : (tensor<?xf32>, tensor<{sizes}xi64>) -> tensor<{kept}xf32>
          return %r : tensor<{kept}xf32>
        }}""")
    x, indices = torch.randn(5), torch.randint(0, 5, (3, *[2] * (sizes.count("x") - 1), 1))
    assert_same(module(x, indices), x[indices.squeeze(-1)])


@pytest.mark.parametrize("element", ["i1", "i32", "ui8", "ui32"])
def test_broadcasts_to_a_dynamic_size(element):
    one = "true" if element == "i1" else "1"
    module = turbine_lite.load_mlir(f"""
        func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {{
          %size = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
          %shape = stablehlo.reshape %size : (tensor<i32>) -> tensor<1xi32>
          %one = stablehlo.constant dense<{one}> : tensor<{element}>
          %ones = stablehlo.dynamic_broadcast_in_dim %one, %shape, dims = []
            : (tensor<{element}>, tensor<1xi32>) -> tensor<?x{element}>
          %converted = stablehlo.convert %ones : (tensor<?x{element}>) -> tensor<?xf32>
          %r = stablehlo.add %x, %converted : tensor<?xf32>
          return %r : tensor<?xf32>
        }}""")
    x = torch.randn(5)
    assert_same(module(x), x + 1)


def test_a_broadcast_that_may_expand_is_refused():
    with pytest.raises(CompilationError, match="dynamic_broadcast_in_dim"):
        turbine_lite.load_mlir("""
            func.func @main(%x: tensor<?xf32>, %shape: tensor<2xi32>) -> tensor<?x3xf32> {
              %r = stablehlo.dynamic_broadcast_in_dim %x, %shape, dims = [0]
                : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x3xf32>
              return %r : tensor<?x3xf32>
            }""")


def test_windows_over_dynamic_sizes():
    module = turbine_lite.load_mlir("""
        func.func @main(%x: tensor<?x?xi32>) -> tensor<?x?xi32> {
          %first = stablehlo.constant dense<1> : tensor<i32>
          %r = "stablehlo.reduce_window"(%x, %first) <{window_dimensions = array<i64: 2, 3>,
            window_strides = array<i64: 1, 2>, window_dilations = array<i64: 2, 1>,
            padding = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}> ({
            ^bb0(%a: tensor<i32>, %b: tensor<i32>):
              %c = stablehlo.multiply %a, %b : tensor<i32>
              stablehlo.return %c : tensor<i32>
            }) : (tensor<?x?xi32>, tensor<i32>) -> tensor<?x?xi32>
          return %r : tensor<?x?xi32>
        }""")
    for rows, columns in ((4, 6), (7, 5)):
        x = torch.randint(1, 5, (rows, columns), dtype=torch.int32)
        padded = torch.nn.functional.pad(x, (1, 0, 0, 1), value=1)
        windows = padded.unfold(0, 3, 1)[..., ::2].unfold(1, 3, 2)
        assert_same(module(x), windows.prod(-1).prod(-1).int())


def test_onnx(tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "y"], ["z"]), helper.make_node("Relu", ["z"], ["out"])],
        "g",
        [value("x", TensorProto.FLOAT, [2, 3]), value("y", TensorProto.FLOAT, [3, 4])],
        [value("out", TensorProto.FLOAT, [2, 4])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "g.onnx")
    x, y = torch.randn(2, 3), torch.randn(3, 4)
    assert_same(turbine_lite.load_mlir(tmp_path / "g.onnx")(x, y), (x @ y).relu())
