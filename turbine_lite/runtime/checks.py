"""Whether arguments are what a function takes; in words if not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from turbine_lite.compiler.foreign import Function, Value
from turbine_lite.runtime.loaded import is_torch_tensor

__all__ = ["check_arguments", "check_sizes", "in_order", "signature_text"]


def in_order(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments by position, of which some are given by name.

    Raises:
        TypeError: one is missing, given twice or unknown.
    """
    names = [value.name for value in function.inputs]
    given = dict(enumerate(args))
    for name, value in kwargs.items():
        if name not in names:
            raise TypeError(f"{function.name} has no input {name!r}: {signature_text(function)}")
        if names.index(name) in given:
            raise TypeError(f"{function.name} got input {name!r} twice: {signature_text(function)}")
        given[names.index(name)] = value
    if sorted(given) != list(range(len(names))):
        raise TypeError(f"{function.name} takes {len(names)} inputs, not {len(given)}: {signature_text(function)}")
    return [given[position] for position in range(len(names))]


def check_arguments(function: Function, args: Sequence[Any]) -> list[Any]:
    """The arguments, numbers as arrays where arrays are wanted.

    Raises:
        TypeError: one is of another kind or dtype.
        ValueError: one has another shape.
    """
    return [
        _checked(function, index, value, arg)
        for index, (value, arg) in enumerate(zip(function.inputs, args, strict=True))
    ]


def _checked(function: Function, index: int, value: Value, arg: Any) -> Any:
    where = f"input {index}{f' ({value.name})' if value.name else ''} of {function.name}"
    if value.sizes is None:
        if isinstance(arg, (bool, int, float, np.number)):
            return arg
        raise TypeError(f"{where} is a number, {value.dtype}; it got a {type(arg).__name__}")
    if is_torch_tensor(arg):
        if arg.device.type != "cpu" or str(arg.layout) != "torch.strided":
            raise TypeError(f"{where} got a tensor on {arg.device} ({arg.layout}); it takes strided ones on the CPU")
        dtype = str(arg.dtype).removeprefix("torch.")
    else:
        arg = arg if isinstance(arg, np.ndarray) else np.asarray(arg, _numpy_dtype(value.dtype, arg))
        dtype = arg.dtype.name
    if dtype != value.dtype:
        raise TypeError(f"{where} is {_text(value)}; it got {dtype}. Convert it first")
    shape = tuple(arg.shape)
    matches = len(shape) == len(value.sizes) and all(
        want is None or size == want for size, want in zip(shape, value.sizes, strict=True)
    )
    if not matches:
        raise ValueError(f"{where} is {_text(value)}; it got the shape {list(shape)}")
    return arg


def _numpy_dtype(dtype: str, value: Any) -> Any:
    """That of a Python number or list, which takes what it is wanted as; others say theirs themselves."""
    return None if dtype == "bfloat16" or hasattr(value, "dtype") else np.dtype(dtype)


def _text(value: Value) -> str:
    if value.sizes is None:
        return value.dtype
    return f"{value.dtype}[{', '.join('?' if size is None else str(size) for size in value.sizes)}]"


def check_sizes(specs: Iterable[tuple[str, Any, Mapping[str, Sequence[int | None]]]], inputs: Sequence[Any]) -> None:
    """Compare dynamic sizes with their bounds, and those of the same symbol with each other.

    Args:
        specs: name, shape (sizes or names of symbols; None for a number) and bounds of symbols, for each input.
        inputs: tensors, arrays or numbers.

    Raises:
        ValueError: one is out of bounds, or another than elsewhere.
    """
    sizes: dict[str, int] = {}
    for (name, shape, bounds), value in zip(specs, inputs, strict=True):
        for symbol, size in zip(shape or (), getattr(value, "shape", ()), strict=False):
            if not isinstance(symbol, str):
                continue
            least, most = bounds[symbol]
            if (least is not None and size < least) or (most is not None and size > most):
                limits = f"{least} to {'any' if most is None else most}"
                raise ValueError(f"{name} has a size of {size} where {symbol} is {limits}")
            if sizes.setdefault(symbol, size) != size:
                raise ValueError(f"{name} has a size of {size} where {symbol} is {sizes[symbol]} already")


def signature_text(function: Function) -> str:
    """A function as one writes it: ``main(x: float32[4, ?]) -> float32[4]``."""
    inputs = [f"{value.name or f'_{index}'}: {_text(value)}" for index, value in enumerate(function.inputs)]
    outputs = [_text(value) for value in function.outputs]
    returns = outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})"
    return f"{function.name}({', '.join(inputs)}) -> {returns}"
