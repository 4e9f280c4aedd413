"""What torch-mlir's conversion to StableHLO leaves undone: constants of another dialect, and shapes in a third.

Graphs of FX never expand a dynamic size that may be 1 at a call: where two sizes meet and one of them is not 1 in its
type, that one is the result's. torch-mlir's conversion does not know, and computes it with the shape dialect, which
IREE and other consumers of StableHLO have no conversions for.

Nothing in this module may import torch, see ``pipeline.py``.
"""

from __future__ import annotations

from typing import Any

__all__ = ["finish_stablehlo", "operations", "say_what_broadcasts_expand"]


def finish_stablehlo(ir: Any, module: Any) -> None:
    """Leave StableHLO with, where sizes are dynamic, arith and tensor; in place. Then there may be dead code."""
    _make_constants(ir, module)
    _compute_shapes(ir, module)
    _count_in_integers(ir, module)
    say_what_broadcasts_expand(ir, module)


def operations(ir: Any, module: Any, *names: str) -> list[Any]:
    """All operations of these names, in the order of the text."""
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        if operation.name in names:
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _make_constants(ir: Any, module: Any) -> None:
    for constant in operations(ir, module, "arith.constant"):
        type_ = str(constant.results[0].type)
        if not type_.startswith("tensor<") or type_.endswith("xindex>"):
            continue
        with ir.InsertionPoint(constant), constant.location:
            value = {"value": constant.attributes["value"]}
            made = ir.Operation.create("stablehlo.constant", [constant.results[0].type], attributes=value)
        constant.results[0].replace_all_uses_with(made.results[0])
        constant.erase()


def _compute_shapes(ir: Any, module: Any) -> None:
    """Write operations of the shape dialect as the sizes they stand for."""
    shapes = operations(ir, module, "shape.shape_of", "shape.const_shape", "shape.broadcast", "shape.num_elements")
    for operation in shapes:
        with ir.InsertionPoint(operation), operation.location:
            made = _COMPUTED[operation.name](ir, operation)
        operation.results[0].replace_all_uses_with(made)
    for operation in reversed(shapes):
        operation.erase()


def _shape_of(ir: Any, operation: Any) -> Any:
    operand = operation.operands[0]
    return _shape(ir, [_size(ir, operand, dim) for dim in range(ir.RankedTensorType(operand.type).rank)])


def _const_shape(ir: Any, operation: Any) -> Any:
    sizes = [int(size) for size in ir.DenseIntElementsAttr(operation.attributes["shape"])]
    return _shape(ir, [_index(ir, size) for size in sizes])


def _broadcast(ir: Any, operation: Any) -> Any:
    shapes = [_sizes_in(shape) for shape in operation.operands]
    rank = max(map(len, shapes))
    sizes: list[Any] = []
    for dim in range(-rank, 0):
        meeting = [shape[dim] for shape in shapes if len(shape) >= -dim]
        sizes.append(next((size for size in meeting if not _is_one(ir, size)), meeting[0]))
    return _shape(ir, sizes)


def _num_elements(ir: Any, operation: Any) -> Any:
    product, *sizes = _sizes_in(operation.operands[0]) or [_index(ir, 1)]
    for size in sizes:
        product = ir.Operation.create("arith.muli", [product.type], [product, size]).results[0]
    return product


_COMPUTED = {
    "shape.shape_of": _shape_of,
    "shape.const_shape": _const_shape,
    "shape.broadcast": _broadcast,
    "shape.num_elements": _num_elements,
}


def _index(ir: Any, number: int) -> Any:
    index = ir.IndexType.get()
    value = {"value": ir.IntegerAttr.get(index, number)}
    return ir.Operation.create("arith.constant", [index], attributes=value).results[0]


def _size(ir: Any, tensor: Any, dim: int) -> Any:
    type_ = ir.RankedTensorType(tensor.type)
    if not type_.is_dynamic_dim(dim):
        return _index(ir, type_.get_dim_size(dim))
    return ir.Operation.create("tensor.dim", [ir.IndexType.get()], [tensor, _index(ir, dim)]).results[0]


def _shape(ir: Any, sizes: list[Any]) -> Any:
    type_ = ir.RankedTensorType.get([len(sizes)], ir.IndexType.get())
    return ir.Operation.create("tensor.from_elements", [type_], sizes).results[0]


def _sizes_in(shape: Any) -> list[Any]:
    """The sizes of a shape, which an operation before has been written as."""
    made = _maker(shape, "tensor.from_elements")
    if made is None:
        raise ValueError(f"a shape is computed by {shape.owner}, which is not known")
    return list(made.operands)


def _is_one(ir: Any, size: Any) -> bool:
    constant = _maker(size, "arith.constant")
    return constant is not None and ir.IntegerAttr(constant.attributes["value"]).value == 1


def _count_in_integers(ir: Any, module: Any) -> None:
    """Of ``arange`` with step 1, the number: an integer, divided by 1 in float64 and rounded up to an integer."""
    for rounded in operations(ir, module, "stablehlo.ceil"):
        divided = _maker(rounded.operands[0], "stablehlo.divide")
        number = divided and _maker(divided.operands[0], "stablehlo.convert")
        is_scalar = str(rounded.results[0].type) == "tensor<f64>"  # else it is a computation of the user's
        if not number or not is_scalar or not _is_constant_one(divided.operands[1]):
            continue
        for use in list(rounded.results[0].uses):
            converted = use.owner
            if converted.name == "stablehlo.convert" and converted.results[0].type == number.operands[0].type:
                converted.results[0].replace_all_uses_with(number.operands[0])


def _maker(value: Any, name: str) -> Any:
    """The operation that a value comes from, if it is of that name."""
    made = value.owner
    return made.operation if getattr(made, "name", "") == name else None


def _is_constant_one(value: Any) -> bool:
    converted = _maker(value, "stablehlo.convert")
    constant = _maker(converted.operands[0] if converted else value, "stablehlo.constant")
    return constant is not None and str(constant.attributes["value"]).startswith(("dense<1>", "dense<1.0"))


def say_what_broadcasts_expand(ir: Any, module: Any) -> None:
    """Tell consumers that no dynamic size is expanded, for which IREE asks.

    Broadcasts that then expand nothing go: of some, IREE forgets what it was told.
    """
    for broadcast in operations(ir, module, "stablehlo.dynamic_broadcast_in_dim"):
        operand, result = broadcast.operands[0], broadcast.results[0]
        sizes = str(operand.type).removeprefix("tensor<").split("x")[:-1]
        if operand.type == result.type and list(broadcast.attributes["broadcast_dimensions"]) == [*range(len(sizes))]:
            result.replace_all_uses_with(operand)
            broadcast.erase()
            continue
        kept = [dim for dim, size in enumerate(sizes) if size != "1"]
        with module.context:
            broadcast.attributes["known_nonexpanding_dimensions"] = ir.DenseI64ArrayAttr.get(kept)
