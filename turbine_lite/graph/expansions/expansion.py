"""What an expansion is, and the conditions that several of them share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

__all__ = [
    "NARROW",
    "Condition",
    "Expansion",
    "always",
    "bits_of",
    "from_bits",
    "has_no_dimension",
    "in_float32",
    "is_never_empty",
    "is_not_float64",
    "reads_float",
    "tensor_argument",
]

# What eager computes in float32 and rounds.
NARROW = (torch.float16, torch.bfloat16)

Condition = Callable[[Node], bool]


@dataclasses.dataclass(frozen=True)
class Expansion:
    """``function`` replaces the calls of an operator that ``applies_to`` holds for."""

    function: Callable[..., Any]
    applies_to: Condition


def always(node: Node) -> bool:
    """For expansions that hold for all arguments."""
    return True


def tensor_argument(node: Node) -> torch.Tensor:
    """The fake value of the first tensor that a call reads."""
    values = (argument.meta.get("val") for argument in node.all_input_nodes)
    return next(value for value in values if isinstance(value, torch.Tensor))


def reads_float(node: Node) -> bool:
    """Whether the first tensor is of floating point."""
    return tensor_argument(node).is_floating_point()


def has_no_dimension(node: Node) -> bool:
    """Whether the first tensor is a scalar."""
    return tensor_argument(node).dim() == 0


def is_never_empty(node: Node) -> bool:
    """Whether all sizes of the tensors that a call reads are known, and none is 0."""
    return all(
        isinstance(size, int) and size > 0 for argument in node.all_input_nodes for size in argument.meta["val"].shape
    )


def is_not_float64(node: Node) -> bool:
    """For expansions whose approximation is good to float32's precision."""
    value = node.meta["val"]
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float32, *NARROW)


def in_float32(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Compute in float32 what is asked for in float16 or bfloat16, or of integers; for one or two tensors."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        dtype = torch.result_type(tensors[0], tensors[-1])
        if not dtype.is_floating_point:
            dtype = torch.float32
        wide = torch.float32 if dtype in NARROW else dtype
        result = function(*(arg.to(wide) if isinstance(arg, torch.Tensor) else arg for arg in args), **kwargs)
        return result.to(dtype)

    return wrapped


_BITS = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}


def bits_of(x: torch.Tensor) -> torch.Tensor:
    """The same bytes as integers. IREE's compiler crashes on those of a tensor without dimensions."""
    return x.reshape(-1).view(_BITS[x.dtype]).reshape(x.shape)


def from_bits(bits: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What :func:`bits_of` takes apart."""
    return bits.reshape(-1).view(dtype).reshape(bits.shape)
