"""Casts to and from half precision, which round.

IREE computes half precision in float32 and leaves out casts that it takes for each other's inverse: what was to be
rounded keeps its digits. Here the digits are cut off as integers, which no cast undoes. Results of operators in half
precision are still rounded only where they are stored or cast, see the README on tolerances.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.fx import Node

from turbine_lite.graph.expansions.expansion import NARROW, Expansion, bits_of, from_bits, tensor_argument
from turbine_lite.graph.work import CONTRACTIONS

__all__ = ["EXPANSIONS", "rounded"]

# The bits of float32 that each has no room for.
_LOST = {torch.bfloat16: 16, torch.float16: 13}
_LARGEST = torch.finfo(torch.float16).max
_SMALLEST_NORMAL = torch.finfo(torch.float16).tiny


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The nearest float32 that ``dtype`` has; of two the even one."""
    lost = _LOST[dtype]
    bits = bits_of(x)
    bits = bits + (2 ** (lost - 1) - 1) + ((bits >> lost) & 1)
    result = from_bits(bits & -(2**lost), torch.float32)
    if dtype is torch.float16:
        # What is subnormal in float16 are multiples of the last digit of 0.75.
        size = (x.abs() + 0.75) - 0.75
        result = torch.where(x.abs() < _SMALLEST_NORMAL, torch.where(x < 0, -size, size), result)
        result = torch.where(result.abs() > _LARGEST, torch.where(x < 0, -math.inf, math.inf), result)
    return torch.where(x.isnan() | (x == 0), x, result)


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype in NARROW:
        return rounded(x.to(torch.float32), dtype).to(dtype)
    return rounded(x.to(dtype), x.dtype)


def _may_be_left_out(node: Node) -> bool:
    source, dtype = tensor_argument(node).dtype, node.args[1]
    if source in NARROW and dtype is torch.float32:
        return node.args[0].op == "call_function"  # type: ignore[union-attr]  # what is given was stored
    # Contractions round their arguments themselves.
    is_computed_with = any(user.op != "output" and user.target not in CONTRACTIONS for user in node.users)
    return source in (torch.float32, torch.float64) and dtype in NARROW and is_computed_with


EXPANSIONS = {torch.ops.prims.convert_element_type.default: Expansion(_cast, _may_be_left_out)}
