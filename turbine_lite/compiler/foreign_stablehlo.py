"""StableHLO as IREE 3.13 converts it where sizes are dynamic: some operations written with those of other dialects.

Runs in a compiler process. Nothing in this module may import torch, see ``pipeline.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from turbine_lite.compiler.stablehlo import operations, say_what_broadcasts_expand

__all__ = ["help_with_dynamic_sizes"]

# Of a module. Sizes of the same name in it are equal, and none of them is expanded where it happens to be 1.
_JAX_HAS_DYNAMIC_SIZES = "jax.uses_shape_polymorphism"


def help_with_dynamic_sizes(ir: Any, module: Any) -> None:
    """Rewrite a module, in place.

    ``dynamic_reshape`` and ``reduce_window`` have no conversion. From the indices of a ``gather`` whose coordinates are
    single numbers, IREE drops their dimension by a static reshape. What a ``dynamic_broadcast_in_dim`` expands, IREE
    has to be told, and forgets when it makes one of two.
    """
    attributes = module.operation.attributes
    if _JAX_HAS_DYNAMIC_SIZES in attributes and str(attributes[_JAX_HAS_DYNAMIC_SIZES]) == "true":
        say_what_broadcasts_expand(ir, module)
    for reshape in operations(ir, module, "stablehlo.dynamic_reshape"):
        _replace(ir, reshape, "tensor.reshape", {})
    for gather in operations(ir, module, "stablehlo.gather"):
        _drop_dimension_of_coordinates(ir, gather)
    functions: dict[str, str] = {}
    for window in operations(ir, module, "stablehlo.reduce_window"):
        _call_instead(ir, module, functions, window, _window_function(ir, window))
    for broadcast in operations(ir, module, "stablehlo.dynamic_broadcast_in_dim"):
        _call_instead(ir, module, functions, broadcast, _broadcast_function(ir, broadcast))


def _call_instead(ir: Any, module: Any, functions: dict[str, str], operation: Any, function: str | None) -> None:
    """Call a function (its text from the arguments on; None: leave it) in place of an operation."""
    if function is None:
        return
    if function not in functions:
        functions[function] = f"turbine_lite.{operation.name.partition('.')[2]}_{len(functions)}"
        module.body.append(ir.Operation.parse(f"func.func private @{functions[function]}{function}"))
    _replace(ir, operation, "func.call", {"callee": ir.FlatSymbolRefAttr.get(functions[function])})


def _replace(ir: Any, operation: Any, name: str, attributes: dict[str, Any]) -> None:
    with ir.InsertionPoint(operation), operation.location:
        types = [result.type for result in operation.results]
        made = ir.Operation.create(name, types, list(operation.operands), attributes)
    for old, new in zip(operation.results, made.results, strict=True):
        old.replace_all_uses_with(new)
    operation.erase()


def _drop_dimension_of_coordinates(ir: Any, gather: Any) -> None:
    indices = gather.operands[1]
    type_ = ir.RankedTensorType(indices.type)
    last = type_.rank - 1
    # The number of that dimension says, once it is gone, that there is none.
    is_last = f"index_vector_dim = {last}>" in str(gather.attributes["dimension_numbers"])
    if not is_last or type_.has_static_shape or type_.is_dynamic_dim(last) or type_.get_dim_size(last) != 1:
        return
    groups = [[dim] for dim in range(last)]
    groups[-1].append(last)
    integer = ir.IntegerType.get_signless(64)
    reassociation = [ir.ArrayAttr.get([ir.IntegerAttr.get(integer, dim) for dim in group]) for group in groups]
    smaller = ir.RankedTensorType.get(list(type_.shape)[:-1], type_.element_type)
    with ir.InsertionPoint(gather), gather.location:
        attributes = {"reassociation": ir.ArrayAttr.get(reassociation)}
        made = ir.Operation.create("tensor.collapse_shape", [smaller], [indices], attributes)
    gather.operands[1] = made.results[0]


def _map(dims: int, results: Iterable[Any]) -> str:
    return f"affine_map<({', '.join(f'd{dim}' for dim in range(dims))}) -> ({', '.join(map(str, results))})>"


def _broadcast_function(ir: Any, broadcast: Any) -> str | None:
    """A function that broadcasts, if no dynamic size is expanded and linalg has the type of the elements."""
    source, shape, result = (ir.RankedTensorType(value.type) for value in (*broadcast.operands, broadcast.results[0]))
    key = "known_nonexpanding_dimensions"
    kept = list(broadcast.attributes[key]) if key in broadcast.attributes else []
    if str(source.element_type).startswith("ui") or any(
        source.is_dynamic_dim(dim) and dim not in kept for dim in range(source.rank)
    ):
        return None
    to = list(broadcast.attributes["broadcast_dimensions"])
    read = [0 if list(source.shape)[dim] == 1 else f"d{to[dim]}" for dim in range(source.rank)]
    dynamic = [dim for dim in range(result.rank) if result.is_dynamic_dim(dim)]
    element, lines = source.element_type, []
    for dim in dynamic:
        lines.append(f"%dim{dim} = arith.constant {dim} : index")
        if dim in to and source.is_dynamic_dim(to.index(dim)):
            lines.append(f"%of{dim} = arith.constant {to.index(dim)} : index")
            lines.append(f"%size{dim} = tensor.dim %source, %of{dim} : {source}")
        elif str(shape.element_type) == "index":
            lines.append(f"%size{dim} = tensor.extract %shape[%dim{dim}] : {shape}")
        else:
            lines.append(f"%number{dim} = tensor.extract %shape[%dim{dim}] : {shape}")
            lines.append(f"%size{dim} = arith.index_cast %number{dim} : {shape.element_type} to index")
    kinds = ", ".join(['"parallel"'] * result.rank)
    maps = f"{_map(result.rank, read)}, {_map(result.rank, (f'd{dim}' for dim in range(result.rank)))}"
    lines += [
        f"%empty = tensor.empty({', '.join(f'%size{dim}' for dim in dynamic)}) : {result}",
        f"%made = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} ins(%source : {source}) "
        f"outs(%empty : {result}) {{ ^bb0(%a: {element}, %b: {element}): linalg.yield %a : {element} }} -> {result}",
        f"return %made : {result}",
    ]
    return "\n".join([f"(%source: {source}, %shape: {shape}) -> {result} {{", *lines, "}"])


# From what a window is reduced by to the operation on numbers, for floating point and for integers.
_REDUCTIONS = {
    "stablehlo.add": ("arith.addf", "arith.addi"),
    "stablehlo.multiply": ("arith.mulf", "arith.muli"),
    "stablehlo.maximum": ("arith.maximumf", "arith.maxsi"),
    "stablehlo.minimum": ("arith.minimumf", "arith.minsi"),
}
_ELEMENT = re.compile(r"(?P<float>bf16|f\d+)|i(8|16|32|64)")


def _window_function(ir: Any, window: Any) -> str | None:
    """A function that does what ``reduce_window`` of one tensor does, if that has dynamic sizes."""
    if len(window.operands) != 2:
        return None
    source, first, result = (ir.RankedTensorType(value.type) for value in (*window.operands, window.results[0]))
    element = _ELEMENT.fullmatch(str(source.element_type))
    if element is None or (source.has_static_shape and result.has_static_shape):
        return None
    rank, of = source.rank, element[0]
    reduction = _reduction(window, is_float=bool(element["float"]))
    low, high = _padding(ir, window, rank)
    is_spread = any(size != 1 for size in _numbers(window, "base_dilations", rank))
    if reduction is None or is_spread or min(*low, *high, 0) < 0:
        return None
    sizes, strides, dilations = (
        _numbers(window, key, rank) for key in ("window_dimensions", "window_strides", "window_dilations")
    )
    padded = _padded(ir, source, low, high)
    position = ", ".join(f"%i{dim}: index" for dim in range(rank))
    lines = [
        f"%init = tensor.extract %first[] : {first}",
        f"%padded = tensor.pad %source low{low} high{high} {{ ^bb0({position}): tensor.yield %init : {of} }} "
        f": {source} to {padded}",
    ]
    dynamic = [dim for dim in range(rank) if result.is_dynamic_dim(dim)]
    for dim in dynamic:
        lines += _size_lines(dim, str(padded), dilations[dim] * (sizes[dim] - 1) + 1, strides[dim])
    read = [f"d{dim} * {strides[dim]} + d{dim + rank} * {dilations[dim]}" for dim in range(rank)]
    inner, outer = ([f"d{dim + offset}" for dim in range(rank)] for offset in (rank, 0))
    maps = ", ".join(_map(2 * rank, results) for results in (read, inner, outer))
    kinds = ", ".join(['"parallel"'] * rank + ['"reduction"'] * rank)
    shape = f"tensor<{'x'.join(map(str, sizes))}x{of}>"
    lines += [
        f"%empty = tensor.empty({', '.join(f'%size{dim}' for dim in dynamic)}) : {result}",
        f"%filled = linalg.fill ins(%init : {of}) outs(%empty : {result}) -> {result}",
        f"%window = tensor.empty() : {shape}",
        f"%reduced = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} "
        f"ins(%padded, %window : {padded}, {shape}) outs(%filled : {result}) {{ "
        f"^bb0(%a: {of}, %_: {of}, %b: {of}): %c = {reduction} %b, %a : {of} linalg.yield %c : {of} }} -> {result}",
        f"return %reduced : {result}",
    ]
    return "\n".join([f"(%source: {source}, %first: {first}) -> {result} {{", *lines, "}"])


def _padded(ir: Any, source: Any, low: list[int], high: list[int]) -> Any:
    sizes = [
        size if source.is_dynamic_dim(dim) else size + low[dim] + high[dim] for dim, size in enumerate(source.shape)
    ]
    return ir.RankedTensorType.get(sizes, source.element_type)


def _size_lines(dim: int, padded: str, reach: int, stride: int) -> list[str]:
    """How often a window fits: ``(size - reach) / stride + 1``."""
    return [
        f"%dim{dim} = arith.constant {dim} : index",
        f"%padded{dim} = tensor.dim %padded, %dim{dim} : {padded}",
        f"%reach{dim} = arith.constant {reach} : index",
        f"%stride{dim} = arith.constant {stride} : index",
        f"%one{dim} = arith.constant 1 : index",
        f"%rest{dim} = arith.subi %padded{dim}, %reach{dim} : index",
        f"%steps{dim} = arith.divsi %rest{dim}, %stride{dim} : index",
        f"%size{dim} = arith.addi %steps{dim}, %one{dim} : index",
    ]


def _reduction(window: Any, *, is_float: bool) -> str | None:
    """The operation on numbers, if the window is reduced by one."""
    body = window.regions[0].blocks[0]
    if len(body.operations) != 2:
        return None
    (by, last), arguments = body.operations, set(body.arguments)
    if list(last.operands) != list(by.results) or set(by.operands) != arguments:
        return None
    for_floats, for_integers = _REDUCTIONS.get(by.operation.name, (None, None))
    return for_floats if is_float else for_integers


def _numbers(window: Any, name: str, rank: int) -> list[int]:
    return [int(number) for number in window.attributes[name]] if name in window.attributes else [1] * rank


def _padding(ir: Any, window: Any, rank: int) -> tuple[list[int], list[int]]:
    if "padding" not in window.attributes:
        return [0] * rank, [0] * rank
    numbers = [int(number) for number in ir.DenseIntElementsAttr(window.attributes["padding"])]
    return numbers[::2], numbers[1::2]
